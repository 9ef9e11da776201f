package lane

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A lane's cache gets an index of what clients select by, and gives it up when memory is short.
func TestLaneIndexes(t *testing.T) {
	ls := idleLanes(t, &Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { ls.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	l := NewLane(ls, Key{GVR: fillingPods}, upstream.ResourceInfo{GVR: fillingPods, Namespaced: true})
	objects := make([]*framing.Object, 1000)
	for i := range objects {
		name := fmt.Sprintf("o%03d", i)
		objects[i] = &framing.Object{
			Key: "a/" + name, Namespace: "a", Name: name, ResourceVersion: 1, Labels: map[string]string{"app": fmt.Sprint(i / 10)},
		}
	}
	if _, err := l.Cache.Replace(objects, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse("app=7")
	if err != nil {
		t.Fatal(err)
	}
	filter, _ := fanout.NewFilter("", selector, nil, nil)
	steady.Until(t, "index", func() error {
		found := 0
		l.Cache.Snapshot().Ascend(filter, "", func(*framing.Object) bool { found++; return true })
		if found != 10 {
			t.Fatalf("found %d objects", found)
		}
		if l.Cache.Stats().Indexes == 0 {
			return fmt.Errorf("%d objects are found without one", found)
		}
		return nil
	})
	ls.ForgetIndexes()
	if got := l.Cache.Stats().Indexes; got != 0 {
		t.Errorf("%d indexes while memory is short", got)
	}
}

// A lane is in quarantine for the given time, also if it was filled when it ended. It counts as quarantined until it has
// been filled, or until nobody has asked for it for a while.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := idleLanes(t, &Options{IdleTimeout: 5 * time.Minute})
		pods := Key{GVR: fillingPods}
		secrets := Key{GVR: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
		ls.quarantine(pods, quarantineFor)
		ls.quarantine(secrets, memoryQuarantine)
		want := func(now int, podsIn, secretsIn bool) {
			t.Helper()
			ls.stopIdle()
			n := ls.QuarantinedCount()
			if n != now || ls.Quarantined(pods) != podsIn || ls.Quarantined(secrets) != secretsIn {
				t.Errorf("%d are in quarantine, %t, %t; want %d, %t, %t", n, ls.Quarantined(pods),
					ls.Quarantined(secrets), now, podsIn, secretsIn)
			}
		}
		ended := NewLane(ls, pods, upstream.ResourceInfo{GVR: fillingPods})
		ended.filling.synced.set()
		ended.users = 1
		ls.byKey[pods] = ended
		want(2, true, true)
		delete(ls.byKey, pods) // as remove does, a moment after quarantine
		time.Sleep(memoryQuarantine)
		want(1, true, true)
		time.Sleep(ls.IdleTimeout())
		want(1, true, false)
		time.Sleep(quarantineFor)
		want(0, false, false)
	})
}

// The histories of all lanes with a selection fit in 256 MiB, whatever --history-bytes says. Clients
// choose the selections.
func TestTableHistories(t *testing.T) {
	for given, most := range map[int64]int64{64 << 20: 256 << 20 / mostSelections, 1 << 10: 1 << 10} {
		ls := idleLanes(t, &Options{HistoryFrames: 100_000, HistoryBytes: given})
		l := NewLane(ls, Key{
			GVR:            fillingPods,
			Representation: request.Representation{Table: "v1"},
			Selection:      reflector.Selection{Labels: "a=b"},
		}, upstream.ResourceInfo{GVR: fillingPods})
		if got := l.Cache.Limits(); got.HistoryBytes > most || got.HistoryEvents > mostTableEvents {
			t.Errorf("a history of %d bytes and %d events, want at most %d and %d",
				got.HistoryBytes, got.HistoryEvents, most, mostTableEvents)
		}
	}
}
