package fanout_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// starts is a sink that notes where each frame starts.
type starts struct {
	silent
	at []*byte
}

func (s *starts) Write(batch [][]byte) (bool, error) {
	for _, b := range batch {
		s.at = append(s.at, &b[0])
	}
	return false, nil
}

// An event, and a change that a list brings, is spliced once for a hundred watches without the same
// fields, whatever their filters and accounts. Watches without other fields have a frame of their own.
func TestTrimSharesFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		trims := []*framing.Trim{nil, framing.Lean, dataless}
		accounts := []*fanout.Account{nil, newAccount("a"), newAccount("b")}
		selectors := []selector{everything(t), sel(t, "", "l=1", ""), sel(t, "a", "", "")}
		sinks := make([][]*starts, len(trims))
		var subs []*fanout.Subscription
		for i, trim := range trims {
			for n := range 100 {
				s := &starts{}
				v := &fanout.Variant{Trim: trim, Account: accounts[n%len(accounts)]}
				sub := w.subscribe(selectors[n%len(selectors)], fanout.Request{Variant: v})
				w.flusher.Start(sub, s)
				sinks[i], subs = append(sinks[i], s), append(subs, sub)
			}
		}
		for _, change := range []func(){
			func() { w.put(managedThing("x", "l", "1")) },
			func() {
				w.relist(func(things map[string]*thing, rv uint64) uint64 {
					x := managedThing("x", "l", "1")
					things["a/x"] = x.at(rv + 1)
					return rv + 1
				})
			},
		} {
			for _, s := range slices.Concat(sinks...) {
				s.at = nil
			}
			change()
			synctest.Wait()
			seen := make(map[*byte]int)
			for i, of := range sinks {
				for n, s := range of {
					if len(s.at) == 0 {
						t.Fatalf("client %d of %d got nothing", n, i)
					}
					if s.at[0] != of[0].at[0] {
						t.Errorf("client %d of trim %d has a frame of its own", n, i)
					}
					seen[s.at[0]]++
				}
			}
			if len(seen) != len(trims) {
				t.Errorf("%d frames for %d trims", len(seen), len(trims))
			}
		}
		for _, s := range subs {
			s.End(fanout.Ending{Reason: fanout.Gone})
		}
	})
}

func newAccount(name string) *fanout.Account {
	return &fanout.Account{Subscriptions: metrics.NewSet().NewGauge(name, nil), Bytes: metrics.NewSet().NewCounter(name), Quiet: metrics.NewSet().NewCounter(name)}
}

// An account counts its subscriptions while they are open, and what is written to them.
func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, mine, other := newWorld(t, roomy), newAccount("mine"), newAccount("other")
		var subs []*fanout.Subscription
		for _, a := range []*fanout.Account{mine, nil, mine, other} {
			sub, _ := w.client(everything(t), fanout.Request{Variant: &fanout.Variant{Account: a}, Gzip: len(subs) == 0})
			subs = append(subs, sub)
		}
		w.put(managedThing("x"))
		w.put(named("y"))
		synctest.Wait()
		if mine.Subscriptions.Get() != 2 || other.Subscriptions.Get() != 1 {
			t.Errorf("%v and %v subscriptions, want 2 and 1", mine.Subscriptions.Get(), other.Subscriptions.Get())
		}
		var bytes [4]uint64
		for i, s := range subs {
			bytes[i] = w.flusher.Inspect([]*fanout.Subscription{s}, time.Second)[0].Bytes
		}
		if want := bytes[0] + bytes[2]; mine.Bytes.Get() != want || want == 0 || other.Bytes.Get() != bytes[3] {
			t.Errorf("%d and %d bytes, want %v", mine.Bytes.Get(), other.Bytes.Get(), bytes)
		}
		for _, s := range subs {
			s.End(fanout.Ending{Reason: fanout.Gone})
		}
		synctest.Wait()
		if mine.Subscriptions.Get() != 0 || other.Subscriptions.Get() != 0 {
			t.Error("subscriptions that have ended count")
		}
	})
}
