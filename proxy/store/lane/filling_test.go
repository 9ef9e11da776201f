package lane

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// coldLane is a lane that only the test fills, and its clients.
type coldLane struct {
	*Lane
	t       *testing.T
	clients sync.WaitGroup
	ends    [5]atomic.Int32 // by FillEnd
	slots   chan Slot
}

// idleLanes returns lanes whose upstream refuses all.
func idleLanes(t *testing.T, opts *Options) *Lanes {
	return NewLanes(t.Context(), testConfig(refusing(0), opts))
}

// testConfig returns what lanes of upstream need, besides discovery.
func testConfig(upstream auth.APIServer, opts *Options) Config {
	set := metrics.NewSet()
	return Config{
		Options: opts, Upstream: upstream, Flusher: fanout.NewFlusher(1, 0, fanout.NewMetrics(set)),
		Metrics: set, Guard: proxytest.Guard(),
	}
}

func newColdLane(t *testing.T) *coldLane {
	ls := idleLanes(t, &Options{})
	l := &coldLane{t: t, Lane: NewLane(ls, Key{GVR: fillingPods}, upstream.ResourceInfo{GVR: fillingPods}),
		slots: make(chan Slot, 1000)}
	return l
}

// come has n clients send the same request.
func (l *coldLane) come(n int, line string) {
	l.t.Helper()
	for range n {
		r, most := proxytest.MustParse(l.t, request.Parse, line), AnswerWait
		if r.Verb == "watch" {
			most = 30 * time.Minute
		}
		w := Waiter{Verb: r.Verb, Arrived: time.Now(), Patience: r.Patience(most), Left: func() bool { return false }}
		l.clients.Go(func() {
			end, slot := l.Await(context.Background(), w)
			l.ends[end].Add(1)
			if slot != nil {
				l.slots <- slot
			}
		})
	}
}

// want fails the test unless these numbers of clients were told that the lane is ready, to pass
// through, and to try again.
func (l *coldLane) want(when string, ready, passed, failed int32) {
	l.t.Helper()
	synctest.Wait()
	r, p, f := l.ends[FillReady].Load(), l.ends[FillPassed].Load(), l.ends[FillFailed].Load()
	if r != ready || p != passed || f != failed {
		l.t.Errorf("%s: %d are ready, %d pass through, %d are refused; want %d, %d, %d", when, r, p,
			f, ready, passed, failed)
	}
}

func (l *coldLane) fill() { l.filling.End(time.Now()) }

// progressFor is a list that brings something each second.
func (l *coldLane) progressFor(d time.Duration) {
	for range d / time.Second {
		time.Sleep(time.Second)
		l.filling.Progress()
	}
}

func coldTest(name string, t *testing.T, f func(l *coldLane)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newColdLane(t)
			f(l)
			l.clients.Wait()
			if n := l.filling.room.Len(); n != 0 {
				t.Errorf("%d clients wait", n)
			}
		})
	})
}

const (
	listPods  = "/api/v1/pods"
	watchPods = "/api/v1/pods?watch=1"
)

func TestFilling(t *testing.T) {
	coldTest("slow, and done in time", t, func(l *coldLane) {
		l.come(300, listPods)
		l.progressFor(Wait)
		l.want("after Wait", 0, MostThrough, 0)
		l.come(100, watchPods)
		l.progressFor(stalledAfter)
		l.want("after long", 0, MostThrough, 0)
		l.fill()
		l.want("when it is done", 400-MostThrough, MostThrough, 0)
	})
	coldTest("lists wait as at kube-apiserver, watches longer", t, func(l *coldLane) {
		l.come(300, listPods)
		l.come(300, watchPods)
		l.progressFor(AnswerWait - time.Second)
		l.want("before AnswerWait", 0, MostThrough, 0)
		l.progressFor(2 * time.Second)
		refused := l.ends[FillFailed].Load()
		if refused < 300-MostThrough || refused > 300 {
			t.Errorf("%d were refused, want the lists", refused)
		}
		l.progressFor(10 * time.Minute)
		l.fill()
		l.want("when it is done", 600-MostThrough-refused, MostThrough, refused)
	})
	coldTest("nothing comes", t, func(l *coldLane) {
		l.come(300, listPods)
		time.Sleep(Wait)
		l.want("after Wait", 0, MostThrough, 0)
		l.come(1, listPods)
		time.Sleep(stalledAfter - Wait + fillTick)
		l.want("after stalledAfter", 0, MostThrough, 300-MostThrough)
		time.Sleep(Wait)
		l.want("later", 0, MostThrough, 301-MostThrough)
	})
	coldTest("it stalls in the middle", t, func(l *coldLane) {
		l.come(300, watchPods)
		l.progressFor(30 * time.Second)
		time.Sleep(stalledAfter - time.Second)
		l.want("before stalledAfter", 0, MostThrough, 0)
		time.Sleep(time.Second + fillTick)
		l.want("after stalledAfter", 0, MostThrough, 300-MostThrough)
		l.come(300, watchPods)
		time.Sleep(stalledAfter - 2*time.Second)
		l.progressFor(time.Minute)
		l.fill()
		l.want("when it goes on", 300, MostThrough, 300-MostThrough)
	})
	coldTest("it waits for others", t, func(l *coldLane) {
		l.filling.InLine(true)
		l.come(300, listPods)
		time.Sleep(AnswerWait / 2)
		l.want("in line", 0, MostThrough, 0)
		l.filling.InLine(false)
		time.Sleep(stalledAfter - time.Second)
		l.want("before it has begun", 0, MostThrough, 0)
		l.fill()
		l.want("when it is done", 300-MostThrough, MostThrough, 0)
	})
	coldTest("refused", t, func(l *coldLane) {
		l.come(300, listPods)
		synctest.Wait()
		l.filling.Fail(false)
		l.come(300, listPods)
		l.want("at once", 0, 0, 0)
		if n := l.ends[FillUseless].Load(); n != 600 {
			t.Errorf("%d wait no longer, want 600", n)
		}
		l.filling.Progress()
		l.come(300, watchPods)
		l.progressFor(Wait + time.Second)
		l.want("when the next attempt makes progress", 0, MostThrough, 0)
		l.filling.Fail(false)
		l.want("when that is refused too", 0, MostThrough, 0)
		if n := l.ends[FillUseless].Load(); n != 900-MostThrough {
			t.Errorf("%d wait no longer, want all others", n)
		}
	})
	coldTest("upstream is away", t, func(l *coldLane) {
		l.come(20, listPods)
		synctest.Wait()
		l.filling.Fail(true)
		l.want("at once", 0, MostThrough, 0)
		time.Sleep(time.Second)
		l.want("while those are not answered", 0, MostThrough, 0)
		slot := <-l.slots
		slot.Close()
		slot.Close()
		l.want("when one is answered", 0, MostThrough+1, 0)
		for range MostThrough {
			(<-l.slots).Close()
		}
		l.want("when all are answered", 0, 2*MostThrough+1, 0)
		l.filling.Progress()
		time.Sleep(2 * fillTick)
		for range MostThrough {
			(<-l.slots).Close()
		}
		l.want("when the next attempt makes progress", 0, 2*MostThrough+1, 0)
		time.Sleep(stalledAfter)
		l.want("after stalledAfter", 0, 2*MostThrough+1, 20-2*MostThrough-1)
	})
	coldTest("attempts break off for long", t, func(l *coldLane) {
		l.come(20, watchPods)
		l.progressFor(30 * time.Second)
		l.filling.Fail(true)
		l.progressFor(time.Minute)
		l.want("in the second attempt", 0, MostThrough, 0)
		l.progressFor(giveUpAfter - time.Minute + fillTick)
		l.want("after giveUpAfter", 0, 2*MostThrough, 0)
		slot := <-l.slots
		slot.Close()
		slot.Close()
		l.want("while one begins", 0, 2*MostThrough, 0)
		time.Sleep(watchThrough)
		l.want("when it has begun", 0, 2*MostThrough+1, 0)
		l.fill()
		l.want("when it is done", 20-2*MostThrough-1, 2*MostThrough+1, 0)
		for range MostThrough {
			(<-l.slots).Close()
		}
		time.Sleep(watchThrough)
	})
	coldTest("the server stops", t, func(l *coldLane) {
		l.come(300, watchPods)
		synctest.Wait()
		l.lanes.EndWaits()
		l.come(1, watchPods)
		l.want("at once", 0, 0, 301)
	})
	coldTest("gets", t, func(l *coldLane) {
		l.come(10, "/api/v1/namespaces/ns/pods/a")
		l.progressFor(Wait - time.Second)
		l.want("before Wait", 0, 0, 0)
		l.progressFor(time.Second)
		l.want("after Wait", 0, MostThrough, 0)
		for n := int32(MostThrough + 1); n <= 10; n++ {
			(<-l.slots).Close()
			l.want("when one is answered", 0, n, 0)
		}
	})
	coldTest("clients with timeouts of their own", t, func(l *coldLane) {
		l.come(10, "/api/v1/pods?timeout=4s")
		l.come(10, "/api/v1/pods?watch=1&timeoutSeconds=4")
		l.progressFor(2 * time.Second)
		l.want("half of it", 0, MostThrough, 0)
		l.progressFor(2 * time.Second)
		l.want("before its end", 0, MostThrough, 20-MostThrough)
	})
}

// The waiting requests of one user leave room for those of others.
func TestWaitingRoom(t *testing.T) {
	var room waitingRoom
	f := func(user fairness.Flow, n, want int) {
		t.Helper()
		entered := 0
		for range n {
			if room.enter(user) {
				entered++
			}
		}
		if entered != want {
			t.Errorf("%d requests of %v may wait, want %d", entered, n, want)
		}
	}
	f(fairness.User("a"), mostWaiting, mostWaitingOfOne)
	f(fairness.User("b"), 1, 1)
	room.leave(fairness.User("a"))
	f(fairness.User("a"), 2, 1)
	f(fairness.User("c"), mostWaiting, mostWaiting-mostWaitingOfOne-1)
	f(fairness.User("d"), 1, 0)
	if n := room.Len(); n != mostWaiting {
		t.Errorf("%d wait, want %d", n, mostWaiting)
	}
}

var fillingPods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// refusing returns an upstream that refuses every request after a time.
func refusing(after time.Duration) auth.APIServer {
	return &proxytest.FakeUpstream[auth.Identity]{Delay: after, Answer: func(auth.Identity, string, []byte) (int, string, error) {
		return http.StatusServiceUnavailable, "", nil
	}}
}

// Nobody waits for a lane that has ended: here its resource is redefined before it is filled, while
// kube-apiserver is away.
func TestFillingEnds(t *testing.T) {
	coldTest("redefined", t, func(l *coldLane) {
		l.come(4*MostThrough, watchPods)
		synctest.Wait()
		l.outdated.Store(true)
		if err := l.reflector.Run(l.t.Context()); !errors.Is(err, reflector.ErrRedefined) {
			l.t.Errorf("the reflector ended with %v", err)
		}
		synctest.Wait()
		if n := l.filling.room.Len(); n != 0 {
			l.t.Errorf("%d clients wait for a lane that has ended", n)
		}
	})
}
