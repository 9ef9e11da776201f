package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestUpstreamSilence: an upstream that falls silent, because its process is stopped or the link is
// dead, is noticed. Clients' streams stay open and go on when it is back. Reads that
// may be stale are served meanwhile. The others get a Status that says when to come back.
func TestUpstreamSilence(t *testing.T) {
	needsPlain(t)
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "silence")
	for _, fault := range []struct {
		name       string
		begin, end func(*proxytest.Relay)
	}{
		{"half-open", func(r *proxytest.Relay) { r.Drop(true) }, func(r *proxytest.Relay) { r.Drop(false) }},
		{"stopped",
			func(*proxytest.Relay) { c.signal(t, "kube-apiserver", syscall.SIGSTOP) },
			func(*proxytest.Relay) { c.signal(t, "kube-apiserver", syscall.SIGCONT) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			r := proxytest.NewRelay(t, c.Address())
			p := privateWatchfan(t, c, c.through(t, r))
			p.waitReady(t)
			ours, admin := p.plain(t), p.admin(t)
			uri := "/api/v1/namespaces/silence/configmaps"
			makeConfigMap(t, direct, "silence", fault.name, "")
			streams := make([]*recording, 10)
			for i := range streams {
				streams[i] = ours.watch(t, uri+"?watch=1&allowWatchBookmarks=1")
				streams[i].wait(t, 2)
			}
			breaks := func() float64 {
				return admin.metric(t, "watchfan_upstream_watch_breaks_total", `resource="configmaps"`)
			}
			before := breaks()

			fault.begin(r)
			var passed sync.WaitGroup
			for i := range 10 {
				passed.Go(func() {
					method, body := http.MethodGet, ""
					if i%2 == 0 {
						method, body = http.MethodPost, `{"metadata":{"name":"lost"}}`
					}
					resp, err := ours.try(method, "/api/v1/namespaces/silence/secrets", nil, body)
					if err != nil {
						t.Errorf("%s: %v", method, err)
						return
					}
					var status metav1.Status
					if err := json.Unmarshal(resp.body, &status); err != nil ||
						resp.status != http.StatusServiceUnavailable ||
						status.Reason != metav1.StatusReasonServiceUnavailable {
						t.Errorf("%s: %d %s, want a Status of 503", method, resp.status, resp.body)
					}
					if after := resp.header.Get("Retry-After"); (after == "1") != (method == http.MethodGet) {
						t.Errorf("%s: Retry-After %q: only what cannot have taken effect may be tried again", method,
							after)
					}
				})
			}
			if resp := ours.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusOK ||
				!strings.Contains(string(resp.body), fault.name) {
				t.Errorf("a list at 0: %d %s", resp.status, resp.body)
			}
			steady.Until(t, "end of the lane's watch", func() error {
				if breaks() == before {
					return fmt.Errorf("%v breaks", before)
				}
				return nil
			})
			passed.Wait()

			fault.end(r)
			rv := direct.patch(t, uri+"/"+fault.name, `{"data":{"k":"1"}}`)
			steady.Until(t, "event of the streams", func() error {
				for _, s := range streams {
					if events := s.all(); !s.open() || events[len(events)-1].rv < rv {
						return fmt.Errorf("last %s, want %d; open: %v", events[len(events)-1], rv, s.open())
					}
				}
				return nil
			})
			for _, s := range streams {
				if _, err := fold(s.all()); err != nil {
					t.Error(err)
				}
				s.stop()
			}
			if n := admin.metric(t, "watchfan_upstream_relists_total", `resource="configmaps"`); n != 0 {
				t.Errorf("%v relists, want the watch resumed", n)
			}
			steady.Until(t, "end of the passed-through requests", func() error {
				if n := admin.metric(t, "watchfan_passthrough_requests_in_flight"); n != 0 {
					return fmt.Errorf("%v", n)
				}
				return nil
			})
		})
	}
}

// signal sends a signal to one of c's processes. SIGSTOP takes a while on a busy machine, and signal
// returns after that.
func (c *cluster) signal(t testing.TB, process string, s syscall.Signal) {
	t.Helper()
	pid := c.Ready.Pids[process]
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("signal %s: %v", process, err)
	}
	if s == syscall.SIGSTOP {
		steady.Until(t, "standstill of "+process, func() error { return stopped(pid) })
	}
}

// stopped returns an error if a thread of a process may still run.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("no threads: %v", err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "T") {
			return fmt.Errorf("%.80s", stat)
		}
	}
	return nil
}
