//go:build nightly

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// halt is longer than watchfan believes anything: what kube-apiserver said of a request's rights (10 s) or of an open
// watch's (66 s), a token's owner, a certificate of a minute, or that a connection is alive (10 s).
const halt = 75 * time.Second

// doubted is a client whose rights change while watchfan stands still.
type doubted struct {
	name          string
	ours, theirs  *target
	uri           string
	before, after int        // what a list is answered
	open          *recording // nil for one that may not watch
}

// TestHalt: a process that stands still for 75 s goes on as if it had only been slow. Its open watches bring each event
// of the halt once, and in order. A read that was sent in the halt shows what was written before it. What was known of
// rights, tokens and certificates is asked again, so that each client gets kube-apiserver's own answer from the first
// request on, and a watch that may not go on ends. Watches that are compared differ in nothing.
//
//testlint:allow timer the process stands still for longer than it believes anything
func TestHalt(t *testing.T) {
	parallel(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	const observing = "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\n" +
		"clients:\n- {mode: observe, users: ['system:serviceaccount:a:observed']}\n"
	if err := os.WriteFile(file, []byte(observing), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newCertified(t, "--config", file)
	work := &churn{target: s.direct, namespaces: []string{"a"}, rate: 10, names: 24, seed: steady.Rand(t).Uint64()}
	const uri = "/api/v1/namespaces/a/configmaps"
	since := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", uri, s.direct.version(t, uri))
	endWork := work.start(t)
	defer endWork()
	ctx, leave := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer func() { leave(); reading.Wait() }()
	observed := s.proxy.secure(t, serviceAccountToken(t, s.direct, "a", "observed"))
	s.direct.allow(t, "a", "observed", "ServiceAccount observed", "get,list,watch /configmaps")
	reading.Go(func() { observed.drink(ctx, uri+"?") })
	truth := s.direct.follow(t, since)
	ways := s.proxy.ways(t, s.cluster.token(t, "admin"))
	var watches []*recording
	var halted atomic.Bool
	for _, way := range ways {
		watches = append(watches, way.watch(t, since))
		reading.Go(func() { // also when the process is stopped
			for pace(ctx.Done(), 20*time.Millisecond) {
				sent := halted.Load()
				if err := way.shows(uri, work.last.Load()); err != nil && sent == halted.Load() { // not a minute late
					t.Error(err)
				}
			}
		})
	}
	steady.UntilTrue(t, "event that is compared", func() bool { return observedBy(t, s.admin).Events > 10 })
	clients := s.doubted(t)

	process := s.proxy.Cmd.Process
	resume := sync.OnceFunc(func() { _ = process.Signal(syscall.SIGCONT) })
	t.Cleanup(resume)
	halted.Store(true)
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(halt)
	steady.UntilTrue(t, "process that stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	s.direct.remove(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings/loses")
	s.direct.remove(t, "/api/v1/namespaces/b/serviceaccounts/goes")
	s.direct.allow(t, "b", "gains", "ServiceAccount gains", "get,list,watch /configmaps")
	written := s.direct.patch(t, uri+"/x", `{"data":{"k":"in the halt"}}`)
	var sent sync.WaitGroup
	for _, way := range ways {
		at := fmt.Sprintf("resourceVersion=%d", written)
		for _, query := range []string{"", "?limit=500", "?fieldSelector=metadata.name%3Dx", "?" + at,
			"?resourceVersionMatch=Exact&" + at} {
			sent.Go(func() {
				if err := way.shows(uri+query, written); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, c := range clients {
		sent.Go(func() {
			if resp, err := c.ours.try(http.MethodGet, c.uri, nil, ""); err != nil || resp.status != c.after {
				t.Errorf("%s, asked in the halt: %d %s, %v; want %d", c.name, resp.status, resp.body, err, c.after)
			}
		})
	}
	time.Sleep(time.Until(end))
	resume()

	sent.Wait()
	for _, c := range clients {
		row{uri: c.uri}.check(t, c.theirs, c.ours)
		if c.open != nil {
			c.open.finish(t)
		}
	}
	if n := s.admin.metric(t, "watchfan_watches_ended_total", `reason="revoked"`); n != 3 {
		t.Errorf("%v watches were revoked, want 3", n)
	}
	seen := observedBy(t, s.admin).Events
	steady.UntilTrue(t, "event that is compared then", func() bool { return observedBy(t, s.admin).Events > seen+10 })
	endWork()
	last := makeConfigMap(t, s.direct, "a", "behind-the-halt", "")
	want := withoutBookmarks(truth.until(t, last))
	for _, w := range watches {
		if err := compare(withoutBookmarks(w.until(t, last)), want); err != nil || !proxytest.FromCache(w.header) {
			t.Errorf("%s, from a cache: %v: %v", w.target.name, proxytest.FromCache(w.header), err)
		}
	}
	report := observedBy(t, s.admin)
	if len(report.Differences) > 0 {
		t.Errorf("%s: %s", report.Verdict, report.Recent)
	}
	t.Logf("%d events of watches, %d writes; %s", len(want), work.succeeded(), report.Verdict)
}

// doubted returns clients whose rights end soon, or begin, with their open watches.
func (s *certified) doubted(t *testing.T) (all []*doubted) {
	t.Helper()
	const uri = "/api/v1/namespaces/b/configmaps?resourceVersion=0"
	for _, c := range []*doubted{
		{name: "loses", before: http.StatusOK, after: http.StatusForbidden},
		{name: "goes", before: http.StatusOK, after: http.StatusUnauthorized},
		{name: "gains", before: http.StatusForbidden, after: http.StatusOK},
	} {
		token := serviceAccountToken(t, s.direct, "b", c.name)
		c.uri, c.ours, c.theirs = uri, s.proxy.secure(t, token), s.cluster.as(t, "")
		c.theirs.token = token
		if c.before == http.StatusOK {
			s.direct.allow(t, "b", c.name, "ServiceAccount "+c.name, "get,list,watch /configmaps")
		}
		all = append(all, c)
	}
	brief, err := s.users.Client("brief", []string{"devs"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c := &doubted{name: "a certificate that expires", uri: "/api/v1/namespaces/a/configmaps?resourceVersion=0",
		before: http.StatusOK, after: http.StatusUnauthorized}
	c.ours, c.theirs = s.ways(t, brief)
	for _, c := range append(all, c) {
		steady.Until(t, "right of "+c.name, func() error {
			resp, err := c.ours.look(c.uri, nil)
			if err == nil && (resp.status != c.before || resp.status == http.StatusOK && !proxytest.FromCache(resp.header)) {
				err = fmt.Errorf("%d", resp.status)
			}
			return err
		})
		if c.before == http.StatusOK {
			c.open = c.ours.watch(t, c.uri+"&watch=1")
		}
	}
	return append(all, c)
}

// shows returns an error unless a list is at least as new as resourceVersion rv.
func (d *target) shows(uri string, rv uint64) error {
	resp, err := d.try(http.MethodGet, uri, nil, "")
	var list metav1.PartialObjectMetadataList
	if err == nil && resp.status != http.StatusOK {
		err = fmt.Errorf("%d: %s", resp.status, resp.body)
	}
	if err == nil {
		err = json.Unmarshal(resp.body, &list)
	}
	if got, _ := strconv.ParseUint(list.ResourceVersion, 10, 64); err == nil && got < rv {
		err = errors.New("it is of " + list.ResourceVersion)
	}
	if err != nil {
		err = fmt.Errorf("%s at %s, when %d was acknowledged: %w", uri, d.name, rv, err)
	}
	return err
}
