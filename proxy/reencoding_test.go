package proxy_test

import (
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// If a relist has the same objects in other bytes, the cache takes the new bytes. Lists have the
// new bytes then, and all open watches end with 410, even those whose selector selects nothing.
func TestReencoded(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "old")
	f.cms.Put("ns", "b", "same")
	watchers := []*proxytest.Watcher{f.watch(anyState), f.watch(anyState + "&labelSelector=none")}
	watchers[0].Await(3)
	f.cms.Reform("ns", "a", "new")
	f.cms.Reflector().Abort()
	for _, w := range watchers {
		if err := w.Ended(); err != nil {
			t.Errorf("stream ended with %v", err)
		}
		events := w.Strings()
		if last := events[len(events)-1]; last != "ERROR 410" {
			t.Errorf("last event is %s, want ERROR 410; all: %s", last, events)
		}
	}
	f.awaitLog("level=WARN", "writes objects differently")
	_, body := f.get(cmsPath + "?resourceVersion=0")
	if strings.Contains(body, "old") || !strings.Contains(body, "new") {
		t.Errorf("list: %s", body)
	}
	w := f.watch(anyState)
	if events := w.Await(3); !strings.Contains(events[0].Raw, "new") {
		t.Errorf("the next watch begins with %s", events[0].Raw)
	}
	f.cms.Put("ns", "n", "1")
	w.AwaitVersion(f.up.RV())
	f.passed(0)
}

// A list with the same bytes ends nothing.
func TestNotReencoded(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "same")
	w := f.watch(anyState)
	w.Await(2)
	f.cms.Reform("ns", "a", "same")
	f.cms.Reflector().Abort()
	f.awaitLog("relisted=true")
	f.cms.Put("ns", "n", "1")
	w.AwaitVersion(f.up.RV())
	f.passed(0)
}
