//go:build nightly

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// second starts another kube-apiserver of c with the same flags, except its port and etcd's
// address, and returns its address. program is a devcluster, perhaps of another version.
func (c *cluster) second(t *testing.T, program, etcd string) string {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Ready.Pids["kube-apiserver"]))
	if err != nil {
		t.Fatal(err)
	}
	port := proxytest.ReservedPort(t)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
	for i, arg := range args {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--secure-port":
			args[i] = name + "=" + port
		case "--etcd-servers":
			args[i] = name + "=http://" + etcd
		}
	}
	p, err := proxytest.StartProcess(exec.Command(program, args...), filepath.Join(t.TempDir(), "second.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.Exited
	})
	address := "127.0.0.1:" + port
	way := c.direct(t)
	way.base = "https://" + address
	err = p.Await(steady.Patience, func() error {
		resp, err := way.try(http.MethodGet, "/readyz", nil, "")
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", resp.status, bytes.TrimSpace(resp.body))
		}
		return err
	})
	if err != nil {
		t.Fatalf("the second kube-apiserver: %v", err)
	}
	return address
}

// etcdAddress returns the host and port of c's etcd.
func (c *cluster) etcdAddress() string { return strings.TrimPrefix(c.Ready.EtcdEndpoint, "http://") }

// TestKubeAPIServerBehind: two kube-apiservers stand behind one address, and one of them is behind
// etcd or cut off from it. Streams go on, without a relist and without going back.
func TestKubeAPIServerBehind(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "behind")
	etcd := proxytest.NewRelay(t, c.etcdAddress())
	a, b := c.Address(), c.second(t, c.Program, etcd.Address())
	front := proxytest.NewRelay(t, a)
	p := privateWatchfan(t, c, c.through(t, front))
	p.waitReady(t)
	ours, admin := p.plain(t), p.admin(t)
	uri := "/api/v1/namespaces/behind/configmaps"
	for i := range 20 {
		makeConfigMap(t, direct, "behind", fmt.Sprint("c", i), "")
	}
	var streams []*recording
	for range 10 {
		streams = append(streams, ours.watch(t, uri+"?watch=1&allowWatchBookmarks=1"))
	}
	write := func(n int) (rv uint64) {
		for i := range n {
			rv = direct.patch(t, fmt.Sprintf("%s/c%d", uri, i%20), fmt.Sprintf(`{"data":{"k":"%d"}}`, i))
		}
		return rv
	}
	reach := func(what string, rv uint64) {
		t.Helper()
		steady.Until(t, what, func() error {
			for _, s := range streams {
				if events := s.all(); !s.open() || events[len(events)-1].rv < rv {
					return fmt.Errorf("last %s, want %d; open: %v", events[len(events)-1], rv, s.open())
				}
			}
			return nil
		})
	}
	breaks := func() float64 {
		return admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="configmaps"`)
	}
	broken := func(before float64) {
		t.Helper()
		steady.Until(t, "break of the lane's watch", func() error {
			if breaks() == before {
				return fmt.Errorf("%v", before)
			}
			return nil
		})
	}
	streams[0].wait(t, 21)

	etcd.Delay(500 * time.Millisecond)
	front.Redirect(b)
	before := breaks()
	front.Reset()
	broken(before)
	reach("a kube-apiserver that is behind", write(40))
	etcd.Delay(0)
	front.Redirect(a)
	front.Reset()
	reach("and back", write(1))

	etcd.Drop(true) // now it answers, but nothing that needs etcd
	before = breaks()
	front.Redirect(b)
	front.Reset()
	broken(before)
	rv := write(40)
	before = breaks()
	broken(before) // it has been tried
	front.Redirect(a)
	reach("a kube-apiserver without etcd, left for another", rv)
	reach("and after it", write(1))

	for _, s := range streams {
		if _, err := fold(s.all()); err != nil {
			t.Error(err)
		}
		s.stop()
	}
	for _, metric := range []string{"watchfan_upstream_relists_total", "watchfan_upstream_resets_total"} {
		if n := admin.metric(t, metric, `resource="configmaps"`); n != 0 {
			t.Errorf("%s is %v", metric, n)
		}
	}
}

// counted is what a list shows of one object that a counter is written to.
type counted struct {
	status, count int
	rv            uint64
	message       string
}

// count lists a collection, each time over another connection.
func (d *target) count(t *testing.T, uri string) (s counted) {
	t.Helper()
	d.close()
	resp, err := d.try(http.MethodGet, uri, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Metadata struct {
			ResourceVersion uint64 `json:",string"`
		}
		Message string
		Items   []struct{ Data map[string]string }
	}
	if err := json.Unmarshal(resp.body, &list); err != nil && resp.status == http.StatusOK {
		t.Fatalf("%s: %v: %.300s", uri, err, resp.body)
	}
	s = counted{status: resp.status, rv: list.Metadata.ResourceVersion, message: list.Message}
	for _, item := range list.Items {
		_, _ = fmt.Sscan(item.Data["k"], &s.count)
	}
	return s
}

// TestBalancer: each connection leads to another of two kube-apiservers, one of which is behind. Straight
// through such a balancer, lists that take any version go back in time. Through watchfan they never do, no read
// is older than it asks for, and a watch from a list's version has each event once. While all lead to one that
// has not heard of etcd for long, a list of a version to come has kube-apiserver's own answer.
func TestBalancer(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "balanced")
	etcd := proxytest.NewRelay(t, c.etcdAddress())
	a, b := c.Address(), c.second(t, c.Program, etcd.Address())
	front := proxytest.NewRelay(t, a)
	front.Redirect(a, b)
	p := privateWatchfan(t, c, c.through(t, front))
	p.waitReady(t)
	usual := privateWatchfan(t, c, c.through(t, front), "--freshness-timeout=3s")
	usual.waitReady(t)
	ours, balanced := p.plain(t), c.direct(t)
	balanced.base = "https://" + front.Address()
	uri := "/api/v1/namespaces/balanced/configmaps"
	makeConfigMap(t, direct, "balanced", "c", "")
	warm(t, []*target{ours, usual.plain(t)}, uri)

	etcd.Delay(300 * time.Millisecond)
	back, last, lastTheirs := 0, counted{}, counted{}
	for i := 1; i <= 20; i++ {
		rv := direct.patch(t, uri+"/c", fmt.Sprintf(`{"data":{"k":"%d"}}`, i))
		theirs := balanced.count(t, uri+"?resourceVersion=0")
		if theirs.count < lastTheirs.count {
			back++
		}
		lastTheirs = theirs
		for _, query := range []string{"?resourceVersion=0", fmt.Sprint("?resourceVersion=", rv), "", "?resourceVersion=0"} {
			got := ours.count(t, uri+query)
			if fresh := query != "?resourceVersion=0"; got.status != http.StatusOK || got.rv < last.rv || got.count < last.count ||
				fresh && (got.count != i || got.rv < rv) {
				t.Errorf("write %d at %d: %s has %+v, after %+v", i, rv, query, got, last)
			}
			last = got
		}
		w := ours.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", uri, last.rv))
		next := direct.patch(t, uri+"/c", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
		if events := w.until(t, next); len(events) != 1 {
			t.Errorf("a watch from %d has %d events, want one", last.rv, len(events))
		}
		w.stop()
	}
	if back == 0 {
		t.Error("straight through the balancer, no list went back")
	}

	front.Redirect(b)
	front.Reset()
	etcd.Hold()
	defer etcd.Release()
	rv := direct.patch(t, uri+"/c", `{"data":{"k":"99"}}`)
	future := fmt.Sprintf("%s?resourceVersion=%d", uri, rv)
	version := regexp.MustCompile(`, current: \d+`) // of the cache that answers
	said := func(d *target) string {
		got := d.count(t, future)
		return fmt.Sprint(got.status, " ", version.ReplaceAllString(got.message, ""))
	}
	before, got := said(balanced), said(usual.plain(t))
	if after := said(balanced); got != before && got != after || !strings.HasPrefix(got, fmt.Sprint(http.StatusGatewayTimeout)) {
		t.Errorf("behind: got %s, kube-apiserver %s before that and %s behind it", got, before, after)
	}
	front.Redirect(a) // alone: requests share a connection, and it is chance to which of two that leads
	front.Reset()
	steady.Until(t, "an answer of the other kube-apiserver", func() error {
		if got := ours.count(t, future); got.status != http.StatusOK || got.count != 99 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}
