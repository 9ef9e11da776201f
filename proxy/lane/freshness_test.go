package lane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// provedLane is a lane without objects, whose upstream lists nothing, each time as of a later
// resourceVersion.
type provedLane struct {
	*Lane
	t        *testing.T
	upstream *proxytest.FakeUpstream[auth.Identity]
	delay    time.Duration // of each answer, whose state is that of its beginning
	mu       sync.Mutex
	version  uint64
	requests sync.WaitGroup
}

func newProvedLane(t *testing.T) *provedLane {
	l := &provedLane{t: t, version: 10}
	l.upstream = &proxytest.FakeUpstream[auth.Identity]{Answer: func(auth.Identity, string, []byte) (int, string, error) {
		list := fmt.Sprintf(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[]}`, l.write())
		time.Sleep(l.delay)
		return 200, list, nil
	}}
	ls := NewLanes(t.Context(), l.upstream, nil, nil, fanout.NewFlusher(1, 0), Memory{}, &Options{}, slog.New(slog.DiscardHandler))
	l.Lane = NewLane(ls, Key{GVR: fillingPods}, upstream.ResourceInfo{GVR: fillingPods})
	t.Cleanup(l.Unregister)
	if _, err := l.Cache.Replace(nil, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	return l
}

// write makes upstream's resourceVersion a new one, and returns it.
func (l *provedLane) write() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	return l.version
}

// prove has a request proved, and fails the test if the proof is older than the request. It returns
// how long that took.
func (l *provedLane) prove(patient bool) time.Duration {
	began, version := time.Now(), l.write()
	proof, err := l.Prove(context.Background(), 3*time.Second, patient)
	if err != nil || proof.AsOf <= version {
		l.t.Errorf("a request at %d is proved as of %d: %v", version, proof.AsOf, err)
	}
	return time.Since(began)
}

// Watches that begin one shortly after another share proofs. The first does not wait for others.
func TestProofsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProvedLane(t)
		l.delay = time.Millisecond
		if took := l.prove(true); took != l.delay {
			t.Errorf("the first watch is proved after %s, want %s", took, l.delay)
		}
		before := l.upstream.Count()
		const watches, apart = 20, 10 * time.Millisecond
		for range watches {
			l.requests.Go(func() {
				if took := l.prove(true); took > gatherFor+2*l.delay {
					t.Errorf("a watch is proved after %s", took)
				}
			})
			time.Sleep(apart)
		}
		l.requests.Wait()
		if n, most := l.upstream.Count()-before, int(watches*apart/gatherFor)+1; n > most {
			t.Errorf("%d proofs for %d watches, want at most %d", n, watches, most)
		}
		time.Sleep(crowdFor)
		if took := l.prove(true); took != l.delay {
			t.Errorf("a watch that comes alone is proved after %s, want %s", took, l.delay)
		}
	})
}

// A read does not wait for others, and the watches that wait share its proof.
func TestProofsHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProvedLane(t)
		l.delay = time.Millisecond
		for range 10 {
			if took := l.prove(false); took != l.delay {
				t.Errorf("a read is proved after %s, want %s", took, l.delay)
			}
		}
		before := l.upstream.Count()
		for range 5 {
			l.requests.Go(func() { l.prove(true) })
		}
		time.Sleep(gatherFor / 2)
		if took := l.prove(false); took != l.delay {
			t.Errorf("a read among watches that wait is proved after %s, want %s", took, l.delay)
		}
		l.requests.Wait()
		if n := l.upstream.Count() - before; n != 1 {
			t.Errorf("%d proofs for a read and the watches before it, want one", n)
		}
	})
}

// A proof that has been asked for serves no request that comes later.
func TestProofsAreNewerThanRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProvedLane(t)
		l.delay = 20 * time.Millisecond
		for i := range 100 {
			l.requests.Go(func() { l.prove(i%3 > 0) })
			time.Sleep(time.Duration(i%7) * time.Millisecond)
		}
		l.requests.Wait()
	})
}
