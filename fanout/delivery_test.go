package fanout_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// moody is a Sink that blocks, drains and breaks at random.
type moody struct {
	recorder
	mu     sync.Mutex
	rng    *rand.Rand
	blocks float64 // how often a Write blocks
	breaks float64 // how often a Drain fails
	pause  time.Duration
	rest   []byte
	parks  int
}

func (m *moody) Write(batch [][]byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rest) > 0 {
		panic("Write before Drain has returned")
	}
	if m.rng.Float64() >= m.blocks {
		return m.recorder.Write(batch)
	}
	m.parks++
	all := slices.Concat(batch...)
	n := m.rng.IntN(len(all))
	m.rest = all[n:]
	_, _ = m.recorder.Write([][]byte{all[:n]})
	return true, nil
}

func (m *moody) Drain(done func(error)) { go func() { done(m.drain()) }() }

//testlint:allow timer pauses of a millisecond and more are those of bubbles
func (m *moody) drain() error {
	m.mu.Lock()
	pause, breaks := time.Duration(m.rng.Int64N(int64(m.pause))), m.rng.Float64() < m.breaks
	m.mu.Unlock()
	switch {
	case m.pause < time.Millisecond:
		runtime.Gosched()
	default:
		select {
		case <-time.After(pause):
		case <-m.endc:
			return errors.New("ended")
		}
	}
	if breaks {
		return errors.New("broken pipe")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.recorder.Write([][]byte{m.rest})
	m.rest = nil
	return nil
}

// wholeLines returns the events in the chunks that have come whole: a Write may have stopped within
// one, and its Drain may still be under way.
func (m *moody) wholeLines(t *testing.T) []string {
	m.recorder.mu.Lock()
	defer m.recorder.mu.Unlock()
	return m.events(t, wholeChunks(m.wire.Bytes()))
}

// checkedClient is a client and what it must get.
type checkedClient struct {
	name     string
	selector selector
	request  fanout.Request
	sink     *moody
	sub      *fanout.Subscription

	// As of the time of Subscribe.
	rv      uint64
	changes int // in the world's history
	initial []string

	left uint64 // the world's resourceVersion when it was ended gracefully; 0 if it was not
}

// want returns the expected events in order, and the resourceVersion of each: 0 for initial ones.
func (c *checkedClient) want(w *world) (lines []string, rvs []uint64) {
	lines = slices.Clone(c.initial)
	if c.request.Start == fanout.FromSnapshot && c.request.Bookmarks && c.request.EndBookmark {
		lines = append(lines, bookmark(c.rv, true))
	}
	rvs = make([]uint64, len(lines))
	for i, change := range w.history {
		if c.request.Start == fanout.FromVersion && change.rv <= c.request.ResourceVersion ||
			c.request.Start != fanout.FromVersion && i < c.changes {
			continue
		}
		if l := change.line(c.selector); l != "" {
			lines, rvs = append(lines, l), append(rvs, change.rv)
		}
	}
	for i := range lines {
		lines[i] = trimmed(lines[i], c.request.Variant)
	}
	return lines, rvs
}

// check compares what the client got with what it must get: everything, or a part from the
// beginning if the stream has ended. It returns the number of events and of periodic bookmarks.
func (c *checkedClient) check(t *testing.T, w *world) (events, bookmarks int) {
	lines, rvs := c.want(w)
	wire := c.sink.wire.Bytes()
	whole := !c.sink.ended() || c.sink.complete
	if !whole { // it may be cut anywhere
		wire = wholeChunks(wire)
	}
	started := c.request.ResourceVersion
	if c.request.Start != fanout.FromVersion {
		started = c.rv
	}
	last := "nothing"
	for _, got := range c.sink.events(t, wire) {
		last = got
		if strings.HasPrefix(got, `{"type":"BOOKMARK"`) && !strings.Contains(got, framing.InitialEventsEnd) {
			bookmarks++
			rv := read(got).Object.Metadata.ResourceVersion
			// A last bookmark may repeat where it began.
			farewell := c.sink.reason == fanout.ShutDown || c.sink.reason == fanout.Aged
			if !c.request.Bookmarks || rv < started || rv == started && !farewell {
				t.Errorf("%s: bookmark %d, started from %d, asked %v", c.name, rv, started, c.request.Bookmarks)
			}
			// "Every event ≤ B that this stream should carry has already been written to it."
			if events < len(rvs) && rvs[events] <= rv {
				t.Errorf("%s: bookmark %d before the event at %d", c.name, rv, rvs[events])
			}
			if events > 0 && rvs[events-1] > rv {
				t.Errorf("%s: bookmark %d behind the event at %d", c.name, rv, rvs[events-1])
			}
			continue
		}
		if events == len(lines) || lines[events] != got {
			want := "nothing"
			if events < len(lines) {
				want = lines[events]
			}
			t.Errorf("%s: event %d of %d:\n got %swant %s", c.name, events, len(lines), got, want)
			return events, bookmarks
		}
		events++
	}
	if c.left > 0 && c.sink.reason == fanout.ShutDown && c.sink.complete {
		if events < len(rvs) && rvs[events] <= c.left {
			t.Errorf("%s: ended gracefully at %d, before the event at %d", c.name, c.left, rvs[events])
		}
		if c.request.Bookmarks && c.left >= started && !strings.HasPrefix(last, `{"type":"BOOKMARK"`) {
			t.Errorf("%s: ended gracefully at %d, with %s", c.name, c.left, last)
		}
	}
	if !c.sink.ended() && events != len(lines) {
		t.Errorf("%s: has %d of %d events, and still runs", c.name, events, len(lines))
	}
	return events, bookmarks
}

// wholeChunks returns the complete chunks of a body that was cut.
func wholeChunks(wire []byte) []byte {
	rest := wire
	for {
		size, chunk, ok := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.ParseUint(string(size), 16, 32)
		if !ok || err != nil || len(chunk) < int(n)+2 {
			return wire[:len(wire)-len(rest)]
		}
		rest = chunk[n+2:]
	}
}

// Every client gets exactly its events, in order, without gap or repetition, and no bookmark too
// early: whenever it joins, wherever it begins, whatever its selector is, however badly it reads, and
// however the objects are held.
func TestDelivery(t *testing.T) {
	tight := fanout.Limits{HistoryEvents: 300, HistoryBytes: 1 << 30, ClientFrames: 30, ClientBytes: 1 << 20}
	for name, limits := range map[string]fanout.Limits{"roomy": roomy, "tight": tight} {
		t.Run(name, func(t *testing.T) {
			seeds := steady.Rand(t)
			for range 5 {
				seed := seeds.Uint64()
				synctest.Test(t, func(t *testing.T) { deliver(t, limits, seed) })
			}
		})
	}
}

func deliver(t *testing.T, limits fanout.Limits, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorldEvery(t, limits, []time.Duration{0, 50 * time.Millisecond, time.Second}[rng.IntN(3)])
	const clients, steps = 120, 1200
	const long = 10 * time.Minute // about as long as the steps take

	checked := make([]*checkedClient, clients)
	var joins sync.WaitGroup
	for i := range checked {
		c := &checkedClient{selector: randomSelector(t, rng)}
		c.sink = &moody{recorder: recorder{endc: make(chan struct{})}, rng: rand.New(rand.NewPCG(seed, uint64(i)+1)),
			pause: 20 * time.Second}
		if rng.IntN(2) == 0 {
			c.sink.blocks = 0.3 * rng.Float64()
			c.sink.breaks = 0.03
		}
		c.request = fanout.Request{
			Start:     fanout.Start(rng.IntN(3)),
			Bookmarks: rng.IntN(3) > 0, EndBookmark: rng.IntN(4) > 0,
			Timeout: 2 * time.Hour,
			Aging:   rng.IntN(2) == 0,
			Gzip:    rng.IntN(2) == 0,
			Variant: []*fanout.Variant{nil, fanout.Lean, withoutData}[rng.IntN(3)],
		}
		c.sink.gzip = c.request.Gzip
		if rng.IntN(3) == 0 {
			c.request.Timeout = time.Duration(1+rng.IntN(300)) * time.Second
		}
		reason := fanout.Gone
		if rng.IntN(2) == 0 {
			reason = fanout.ShutDown
		}
		wait, hesitate, leave := time.Duration(rng.Int64N(int64(long))), time.Duration(rng.IntN(3))*time.Second,
			time.Duration(0)
		if rng.IntN(4) == 0 {
			leave = time.Duration(rng.Int64N(int64(long)))
		}
		checked[i] = c
		joins.Go(func() {
			time.Sleep(wait)
			if !c.join(t, w) {
				return
			}
			c.name = fmt.Sprintf("client %d, %v, start %d at %d of %d, variant %+v", i, c.selector, c.request.Start,
				c.request.ResourceVersion, c.rv, c.request.Variant)
			time.Sleep(hesitate) // changes happen between Subscribe and Start
			w.flusher.Start(c.sub, c.sink)
			if leave > 0 {
				time.Sleep(leave)
				w.mu.Lock()
				c.left = w.rv
				w.mu.Unlock()
				c.sub.End(fanout.Ending{Reason: reason, Graceful: reason == fanout.ShutDown})
			}
		})
	}
	for range steps {
		switch rng.IntN(40) {
		case 0, 1, 2:
			w.advance(1 + uint64(rng.IntN(3)))
		case 3:
			w.relist(func(things map[string]*thing, rv uint64) uint64 {
				for range rng.IntN(8) {
					o := randomThing(rng)
					rv += 1 + uint64(rng.IntN(2))
					if old := things[o.key()]; old != nil && rng.IntN(3) > 0 {
						o.uid = old.uid
					} else {
						rv++ // it was deleted and created again
						o.uid = fmt.Sprint(rv)
					}
					if rng.IntN(3) > 0 {
						things[o.key()] = o.at(rv)
					} else {
						delete(things, o.key())
					}
				}
				return rv + uint64(rng.IntN(3))
			})
		case 4, 5, 6, 7, 8:
			o := randomThing(rng)
			if w.things[o.key()] != nil {
				w.del(o.key())
			}
		case 9, 10:
			w.cache.Repack(rng.IntN(3) > 0)
		default:
			w.put(randomThing(rng))
		}
		if rng.IntN(3) > 0 { // else a burst
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		}
	}
	joins.Wait()
	for _, c := range checked { // in the end all take everything
		c.sink.mu.Lock()
		c.sink.blocks, c.sink.breaks = 0, 0
		c.sink.mu.Unlock()
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()

	var events, bookmarks, parks, running int
	reasons := make(map[fanout.Reason]int)
	for _, c := range checked {
		if c.sub == nil {
			continue
		}
		e, b := c.check(t, w)
		events, bookmarks, parks = events+e, bookmarks+b, parks+c.sink.parks
		if c.sink.ended() {
			reasons[c.sink.reason]++
		} else {
			running++
		}
	}
	t.Logf("%d changes, %d events delivered, %d bookmarks, %d parks, %d running, ended %v",
		len(w.history), events, bookmarks, parks, running, reasons)
	if events < 1000 || bookmarks == 0 || parks == 0 || running == 0 || reasons[fanout.TimedOut] == 0 ||
		reasons[fanout.Gone] == 0 || reasons[fanout.ShutDown] == 0 || reasons[fanout.Aged] == 0 {
		t.Error("not everything happened")
	}
	if s := w.cache.Stats(); s.Subscriptions != running {
		t.Errorf("%d subscriptions, want %d", s.Subscriptions, running)
	}
	if limits == roomy && reasons[fanout.Evicted] > 0 {
		t.Errorf("%d evicted within the bounds", reasons[fanout.Evicted])
	}
}

// join subscribes, and notes the state at that time. It reports false if the history does not reach
// back, or has a gap there.
func (c *checkedClient) join(t *testing.T, w *world) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.rv, c.changes = w.rv, len(w.history)
	if c.request.Start == fanout.FromVersion {
		oldest := w.cache.Stats().Oldest
		c.request.ResourceVersion = oldest + c.sink.rng.Uint64N(w.rv-oldest+20) // some are in the future
		if c.sink.rng.IntN(10) == 0 {
			c.request.ResourceVersion = c.sink.rng.Uint64N(oldest)
		}
	}
	if c.request.Start == fanout.FromSnapshot {
		for _, o := range sorted(w.things) {
			if c.selector.matches(o) {
				c.initial = append(c.initial, line("ADDED", o))
			}
		}
	}
	c.request.Filter = c.selector.filter(t)
	sub, err := w.cache.Subscribe(c.request)
	inGap := w.inGap(c.request.ResourceVersion)
	if errors.Is(err, fanout.ErrExpired) && (inGap || c.request.ResourceVersion < w.cache.Stats().Oldest) {
		return false
	}
	if err != nil || inGap {
		t.Errorf("subscribe from %d of %d: %v", c.request.ResourceVersion, w.rv, err)
		return false
	}
	c.sub = sub
	return true
}

// One writer and a thousand readers of a few groups, on real processors: invariants 1 and 2 of type
// group. They may be inspected while they are served and while they end.
func TestGroupStress(t *testing.T) {
	rng := steady.Rand(t)
	const clients, changes = 1000, 300
	limits := roomy
	limits.BookmarkEvery = time.Hour // which no machine takes
	w := newWorld(t, limits)
	selectors := []selector{everything(t), sel(t, "", "l=1", ""), sel(t, "", "", "spec.node=n1"),
		sel(t, "a", "l!=2", "")}
	checked := make([]*checkedClient, clients)
	var joins sync.WaitGroup
	for i := range checked {
		c := &checkedClient{name: fmt.Sprint("client ", i), selector: selectors[i%len(selectors)]}
		c.sink = &moody{recorder: recorder{endc: make(chan struct{})}, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)),
			pause: 500 * time.Microsecond, blocks: 0.1 * rng.Float64()}
		c.request = fanout.Request{Start: fanout.Start(i / len(selectors) % 3), EndBookmark: true, Bookmarks: i%2 == 0,
			Timeout: time.Hour, Gzip: i%5 > 1}
		c.sink.gzip = c.request.Gzip
		checked[i] = c
	}
	for i := range 8 {
		joins.Go(func() {
			for j := i; j < clients; j += 8 {
				if checked[j].join(t, w) {
					w.flusher.Start(checked[j].sub, checked[j].sink)
				}
				runtime.Gosched()
			}
		})
	}
	for range changes {
		w.put(randomThing(rng))
		for range rng.IntN(20) {
			runtime.Gosched()
		}
	}
	joins.Wait()
	// These asked for more than the history has.
	checked = slices.DeleteFunc(checked, func(c *checkedClient) bool { return c.sub == nil })
	events := 0
	for _, c := range checked {
		lines, _ := c.want(w)
		var got []string
		steady.Until(t, c.name+" with all events", func() error {
			if got = c.sink.wholeLines(t); len(got) < len(lines) {
				return fmt.Errorf("%d events of %d", len(got), len(lines))
			}
			return nil
		})
		diff(t, got, lines)
		events += len(lines)
	}
	t.Logf("%d events delivered", events)
	var subs []*fanout.Subscription
	for _, c := range checked {
		subs = append(subs, c.sub)
	}
	inspect := func() {
		for i, st := range w.flusher.Inspect(subs, 10*time.Second) { // each shard answers more than once
			if st.Phase == fanout.Unknown {
				t.Errorf("%s: no answer", checked[i].name)
			}
		}
	}
	for range 3 {
		joins.Go(inspect)
	}
	w.put(randomThing(rng))
	for _, s := range subs {
		s.End(fanout.Ending{Reason: fanout.Gone})
	}
	joins.Wait()
}

// A reader that has just read the last frame of a list is not ahead of the list. Otherwise its lag
// would be 2^64, and it would be evicted. A goroutine that loads progress, and then reads a group's list,
// finds everything up to progress there. Bookmarks rely on this order.
func TestReaderNotAhead(t *testing.T) {
	const changes = 200_000
	w := newWorld(t, roomy)
	sub := w.subscribe(everything(t), fanout.Request{})
	defer sub.Cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ev := range prepare(w.rv, changes) {
			apply(t, w.cache, ev)
		}
	}()
	for {
		rv := w.cache.Progress()
		if last := sub.Appended(); last < rv && rv > 100 {
			t.Fatalf("progress %d, but the list ends at %d", rv, last)
		}
		if left := sub.Step(); left > changes {
			t.Fatalf("%d frames behind", left)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// Frames that a client has not read are kept up to its bounds and no longer: invariant 3 of type
// group. Other clients are not affected.
func TestSlowReaderBound(t *testing.T) {
	for name, limits := range map[string]fanout.Limits{
		"frames": {HistoryEvents: 5, HistoryBytes: 1 << 30, ClientFrames: 50, ClientBytes: 1 << 30},
		"bytes":  {HistoryEvents: 5, HistoryBytes: 1 << 30, ClientFrames: 1 << 20, ClientBytes: 50 * 1150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, limits)
				slow, quick := newStuck(10), &counter{}
				w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), slow)
				w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), quick)
				var frames []weak.Pointer[byte]
				change := func() {
					w.rv++
					o := named("x")
					o.data = strings.Repeat("d", 1000)
					ev := event("MODIFIED", o.at(w.rv))
					frames = append(frames, weak.Make(&ev.Object.Frame(framing.Modified).Body[0]))
					if err := w.cache.Apply(ev, time.Now()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * fanout.SweepEvery)
				}
				alive := func() (n int) {
					synctest.Wait()
					runtime.GC()
					for _, f := range frames {
						if f.Value() != nil {
							n++
						}
					}
					return n
				}
				for range 48 {
					change()
				}
				if n := alive(); n < 45 || slow.ended() {
					t.Errorf("%d of %d frames kept for the slow client: this test measures nothing", n, len(frames))
				}
				for range 10 {
					change()
				}
				// Past its bounds it is evicted, although its socket still takes nothing, and it
				// holds no frame any more.
				for range 2 {
					if n := alive(); n > limits.HistoryEvents+2 {
						t.Errorf("%d frames kept, want at most those of the history and the last one", n)
					}
					slow.wantEnd(t, fanout.Evicted, false)
					for range 50 {
						change()
					}
				}
				if got := quick.count(); got != len(frames) || quick.ended.Load() {
					t.Errorf("the quick client got %d events, want %d", got, len(frames))
				}
			})
		})
	}
}

// A client that reads too slowly is evicted with a proper end, at a place from which it can resume. With
// gzip it gets a complete member. Its sink is told how far behind it was.
func TestEvict(t *testing.T) {
	for _, gzip := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limits := roomy
			limits.ClientFrames = 20
			w := newWorld(t, limits)
			slow := newStuck(2000)
			slow.gzip = gzip
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{Gzip: gzip}), slow)
			for i := range 30 {
				o := named(fmt.Sprint(i))
				o.data = randomText(rand.New(rand.NewPCG(uint64(i), 0)), 300)
				w.put(o)
				time.Sleep(2 * fanout.SweepEvery)
			}
			if n := len(slow.evicted); n != 1 || slow.evicted[0].ParkedSince.IsZero() || slow.evicted[0].LagEvents == 0 || slow.evicted[0].Oldest.IsZero() {
				t.Errorf("evicted in state %+v", slow.evicted)
			}
			slow.readOn()
			slow.wantEnd(t, fanout.Evicted, true)
			got, all := slow.lines(t), w.since(everything(t), 100)
			if len(got) < 4 || len(got) >= len(all) {
				t.Fatalf("got %d of %d events: this test measures nothing", len(got), len(all))
			}
			diff(t, got, all[:len(got)])
			_, again := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: read(got[len(got)-1]).Object.Metadata.ResourceVersion})
			again.wantLines(t, all[len(got):]...)
		})
	}
}

// A client whose replay is overtaken by the history gets the beginning of what it missed, and then the
// end of its stream, even if the history forgets changes while a batch is being filled.
func TestExpired(t *testing.T) {
	for _, gzip := range []bool{false, true} {
		limits := roomy
		limits.HistoryEvents = 200
		w := newWorld(t, limits)
		for range 200 {
			w.put(named("x"))
		}
		want := w.since(everything(t), 100)
		overtaken := false
		overtake := framing.NewTrim(framing.Drop{
			Fields: []framing.Path{framing.Names("nothing")},
			Selects: func(map[string]string) bool { // the first frame of the replay is being made
				if !overtaken {
					overtaken = true
					for range 200 {
						w.put(named("y"))
					}
				}
				return false
			},
		})
		_, r := w.client(everything(t), fanout.Request{
			Start: fanout.FromVersion, ResourceVersion: 100, Gzip: gzip, Variant: &fanout.Variant{Trim: overtake},
		})
		r.wantEnd(t, fanout.Expired, true)
		got := r.lines(t)
		if len(got) == 0 || len(got) >= len(want) {
			t.Fatalf("got %d of %d events: this test measures nothing", len(got), len(want))
		}
		diff(t, got, want[:len(got)])
	}
}
