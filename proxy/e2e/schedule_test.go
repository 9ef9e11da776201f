package e2e_test

import (
	"fmt"
	"testing"
	"time"
)

// TestBookmarkSchedule: bookmarks come "first and every 60 s after start, or deadline − 2 s,
// whichever is earlier", the last one perhaps twice (contract.md 3.3; W23). The stream ends at its
// deadline.
func TestBookmarkSchedule(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "schedule")
	const uri = "/api/v1/namespaces/schedule/configmaps"
	makeConfigMap(t, direct, "schedule", "x", "")
	ways := append([]*target{direct}, p.ways(t, c.token(t, "admin"))...)
	var streams []*recording
	for _, way := range ways {
		streams = append(streams,
			way.watch(t, uri+"?watch=1&allowWatchBookmarks=1&resourceVersion=0&timeoutSeconds=70&labelSelector=none"))
	}
	for i := range 35 { // each write is progress for a bookmark
		time.Sleep(2 * time.Second)
		direct.patch(t, uri+"/x", fmt.Sprintf(`{"data":{"k":"%d"}}`, i))
	}
	// kube-apiserver's own bookmarks vary: there may be one at once, and the last may come three
	// times.
	t.Logf("kube-apiserver: %v", streams[0].finish(t, 10*time.Second))
	for _, s := range streams[1:] {
		events := s.finish(t, 10*time.Second)
		if len(events) < 3 || !events[0].end {
			t.Errorf("%s: %v, want the end of the initial events and at least two bookmarks", s.target.name, events)
			continue
		}
		for i, e := range events {
			after := e.at.Sub(s.opened)
			if want := []time.Duration{0, 60 * time.Second, 68 * time.Second}[min(i, 2)]; e.typ != "BOOKMARK" ||
				after < want-time.Second || after > want+apart(2500*time.Millisecond) {
				t.Errorf("%s: %s after %s, want a bookmark after %s", s.target.name, e, after, want)
			}
			if i > 1 && e.rv < events[i-1].rv {
				t.Errorf("%s: bookmarks go back: %v", s.target.name, events)
			}
		}
		if took := s.ended.Sub(s.opened); took < 70*time.Second || took > 70*time.Second+apart(time.Second) {
			t.Errorf("%s: ended after %s", s.target.name, took)
		}
	}
}

// TestWriteThatChangesNothing: a write that changes nothing makes no event (contract.md W47).
func TestWriteThatChangesNothing(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "same")
	const uri = "/api/v1/namespaces/same/configmaps"
	rv := makeConfigMap(t, direct, "same", "x", "")
	s := sharedWatchfan(t).plain(t).watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=20", uri, rv))
	if again := direct.patch(t, uri+"/x", `{"data":{"k":"0"}}`); again != rv {
		t.Fatalf("kube-apiserver made %d of %d", again, rv)
	}
	last := direct.patch(t, uri+"/x", `{"data":{"k":"1"}}`)
	if first := s.wait(t, 1)[0]; first.rv != last {
		t.Errorf("got %s, want the change of %d", first, last)
	}
	s.stop()
}
