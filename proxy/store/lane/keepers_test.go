package lane

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// user is a source that acquires lanes.
type user string

func (u user) Source() account.Source { return account.Source{Name: string(u)} }

// keptLanes is lanes that count in a ledger.
type keptLanes struct {
	*Lanes
	t      *testing.T
	ledger *account.Ledger
}

// keep runs f in a bubble, with lanes whose copies are bounded for each source.
func keep(t *testing.T, copies int64, f func(*keptLanes)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		k := &keptLanes{t: t, ledger: account.New(account.Limits{Copies: copies})}
		cfg := testConfig(refusing(time.Hour), &Options{IdleTimeout: time.Hour})
		cfg.Discovery, cfg.Memory.Ledger = upstream.NewDiscovery(nil, cfg.Guard), k.ledger
		k.Lanes = NewLanes(ctx, cfg)
		ended := make(chan struct{})
		go func() { k.Run(ctx); close(ended) }()
		f(k)
		stop()
		<-ended
		if got := k.ledger.Totals(); got.Open != 0 {
			t.Errorf("%+v is left", got)
		}
	})
}

// keyOf returns the key of the lane of pods in a representation.
func keyOf(rep request.Representation) Key { return Key{GVR: fillingPods, Representation: rep} }

// watch begins a watch of by on the lane of pods in a representation.
func (k *keptLanes) watch(by user, rep request.Representation) *Keeper {
	k.t.Helper()
	l, why := k.Acquire(upstream.ResourceInfo{GVR: fillingPods}, keyOf(rep), true, 0, by)
	if l == nil {
		k.t.Fatalf("%s gets no lane: %s", by, why)
	}
	return k.Keep(l, by.Source())
}

// fill gives a lane an object.
func (k *keptLanes) fill(l *Lane) {
	k.t.Helper()
	ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",` +
		`"metadata":{"name":"a","namespace":"ns","resourceVersion":"100"}}}` + "\n"))
	if err == nil {
		_, err = l.Cache.Replace([]*framing.Object{ev.Object}, 100, time.Now())
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// want waits for a count, and compares what counts for whom.
func (k *keptLanes) want(when string, want ...string) {
	k.t.Helper()
	time.Sleep(2 * countEvery)
	synctest.Wait()
	var got []string
	for _, h := range k.ledger.Largest(10) {
		for _, kind := range []account.Kind{account.Lanes, account.Copies} {
			if h.Held[kind] > 0 {
				got = append(got, h.Source.Name+" "+kind.String())
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		k.t.Errorf("%s: %v counts, want %v", when, got, want)
	}
}

var (
	inJSON     = request.Representation{}
	inProtobuf = request.Representation{Encoding: framing.Protobuf}
)

// A lane counts for a source as long as that source alone keeps it, with watches or without. A
// resource's second lane is a copy until the first has stopped.
func TestKeepers(t *testing.T) {
	keep(t, 0, func(k *keptLanes) {
		first := k.watch("ann", inJSON)
		k.fill(first.lane)
		k.want("one watch", "ann lanes")
		second := k.watch("ann", inProtobuf)
		k.fill(second.lane)
		k.want("another representation", "ann lanes", "ann copies")
		bob, again := k.watch("bob", inProtobuf), k.watch("ann", inProtobuf)
		k.want("two sources", "ann lanes")
		k.Leave(second)
		k.want("one watch less of a source", "ann lanes")
		k.Leave(again)
		k.want("the first source has left", "ann lanes", "bob copies")
		k.Leave(bob)
		k.want("no watches", "ann lanes", "bob copies")
		k.Leave(first)
		k.mu.Lock()
		k.stopLocked(first.lane)
		k.mu.Unlock()
		k.want("the first lane has stopped", "bob lanes")
		own, _ := k.Acquire(upstream.ResourceInfo{GVR: fillingPods}, keyOf(inProtobuf), true, 0, nil)
		k.want("the proxy itself uses it")
		k.Release(own)
		k.StopUnused()
	})
}

// A lane that is given up ends. For a while its source passes through, and others need not.
func TestGivenUp(t *testing.T) {
	keep(t, 0, func(k *keptLanes) {
		k.fill(k.watch("ann", inJSON).lane)
		given := k.watch("bob", inJSON) // the lane is no longer one source's
		second := k.watch("bob", inProtobuf)
		k.fill(second.lane)
		k.want("before", "bob copies")
		if k.ledger.Relieve(1, account.Copies) == 0 {
			t.Fatal("nothing was given up")
		}
		synctest.Wait()
		if k.Has(second.lane) || !k.Has(given.lane) {
			t.Error("not the lane that one source alone kept was given up")
		}
		pods := upstream.ResourceInfo{GVR: fillingPods}
		if l, why := k.Acquire(pods, keyOf(inProtobuf), true, 0, user("bob")); l != nil || why != request.LaneBound {
			t.Errorf("the source starts the lane again (%q)", why)
		}
		k.Leave(second)
		k.watch("ann", inProtobuf)
		k.watch("bob", inProtobuf)
	})
}

// Copies that hold more than one source's may are given up. The first lane of a resource is not.
func TestCopiesBound(t *testing.T) {
	keep(t, 1, func(k *keptLanes) {
		first, second := k.watch("ann", inJSON), k.watch("ann", inProtobuf)
		k.fill(first.lane)
		k.fill(second.lane)
		k.want("after a count", "ann lanes")
		if k.Has(second.lane) {
			t.Error("the copy is still there")
		}
	})
}

// One source keeps a few lanes of a resource, and a few lanes of Tables with selectors, of all resources together.
// When there are as many as may be, another source gets a lane from the one that has most.
func TestForms(t *testing.T) {
	pods := upstream.ResourceInfo{GVR: fillingPods}
	for name, c := range map[string]struct {
		ofOne, most int
		start       func(k *keptLanes, i int, by user) (*Lane, request.Reason)
	}{
		"forms": {mostFormsOfOne, mostForms, func(k *keptLanes, i int, by user) (*Lane, request.Reason) {
			return k.Acquire(pods, keyOf(request.Representation{Metadata: fmt.Sprint("v", i)}), true, 0, by)
		}},
		"selections": {mostSelectionsOfOne, mostSelections, func(k *keptLanes, i int, by user) (*Lane, request.Reason) {
			key := keyOf(request.Representation{Table: "v1"})
			key.Selection.Labels = fmt.Sprint("n=", i)
			return k.Acquire(pods, key, true, 0, by)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, 0, func(k *keptLanes) {
				started := 0
				start := func(by user, wantMore bool) {
					t.Helper()
					l, why := c.start(k, started, by)
					if l != nil {
						started++
					}
					if (l != nil) != wantMore || l == nil && why != request.LaneBound {
						t.Fatalf("lane %d, of %s: %t (%q), want %t", started, by, l != nil, why, wantMore)
					}
				}
				for _, by := range []user{"ann", "bob"} {
					for range c.ofOne {
						start(by, true)
					}
					start(by, false)
				}
				if started != c.most {
					t.Fatalf("%d lanes, want %d", started, c.most)
				}
				start("eve", true)
				synctest.Wait()
				left := 0
				for _, s := range k.Status() {
					if s.KeptAs != "" {
						left++
					}
				}
				if left != c.most {
					t.Errorf("%d lanes, want %d", left, c.most)
				}
				var newest *Lane
				for range c.ofOne {
					if newest, _ = c.start(k, started, "eve"); newest != nil {
						started++
					}
				}
				if newest != nil {
					t.Error("a source with as many lanes as the others takes more from them")
				}
			})
		})
	}
}
