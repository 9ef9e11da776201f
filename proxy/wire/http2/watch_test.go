package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/VictoriaMetrics/metrics"
	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// watchAll answers each request with a watch, and passes the watches on.
func watchAll(t *testing.T) (*world, chan *testStream) { return watchAllUntil(t, 0) }

func watchAllUntil(t *testing.T, maxAge time.Duration) (*world, chan *testStream) {
	streams := make(chan *testStream, 1000)
	return newWorldOf(t, 100, maxAge, func(x *exchange.Exchange) {
		s := newTestStream()
		x.Response.Stream = s
		streams <- s
	}), streams
}

// open opens a watch and returns its sink.
func (p *peer) open(id uint32, streams chan *testStream) (*watch, *testStream) {
	p.t.Helper()
	p.get(id, "/watch")
	s := steady.Receive(p.t, fmt.Sprint("stream ", id), streams)
	sink := (<-s.sinks).(*watch)
	sink.Carrier()
	return sink, s
}

// data reads DATA of all streams until those of one have n bytes or end. It answers no windows.
func (p *peer) data(got map[uint32]*bytes.Buffer, id uint32, n int) {
	p.t.Helper()
	for got[id] == nil || got[id].Len() < n {
		f := p.next()
		if f == nil {
			p.t.Fatalf("the connection ended before stream %d had %d bytes", id, n)
		}
		if d, ok := f.(*wire.DataFrame); ok {
			if got[d.StreamID] == nil {
				got[d.StreamID] = &bytes.Buffer{}
			}
			got[d.StreamID].Write(d.Data())
		}
	}
}

// event returns an event's chunk and its payload of about n bytes.
func event(n int) (batch [][]byte, payload string) {
	f := framing.ErrorFrame(framing.JSON, []byte(`"`+strings.Repeat("e", n)+`"`))
	return [][]byte{f.Body}, string(f.Payload(nil))
}

// write writes to a watch, which blocks or not, and flushes.
func (w *world) write(sink *watch, batch [][]byte, blocks bool) {
	w.t.Helper()
	if blocked, err := sink.Write(batch); blocked != blocks || err != nil {
		w.t.Fatalf("blocked %v, %v", blocked, err)
	}
	w.flush(sink)
}

// fill writes to a watch until it blocks, and returns how often. The socket takes part of what is
// sealed at once.
func (w *world) fill(sink *watch, batch [][]byte) (writes int) {
	w.t.Helper()
	_ = sink.stream().TCP().SetWriteBuffer(4096)
	for blocked := false; !blocked; writes++ {
		if writes == 1000 {
			w.t.Fatal("a thousand writes were taken without a wait")
		}
		var err error
		if blocked, err = sink.Write(batch); err != nil {
			w.t.Fatal(err)
		}
		w.flush(sink)
	}
	return writes
}

// drained waits until a parked watch has been drained.
func drained(t testing.TB, w *watch) error {
	t.Helper()
	done := make(chan error, 1)
	w.Drain(func(err error) { done <- err })
	return steady.Receive(t, "end of the drain", done)
}

// A closed window parks its stream, and no other, and PINGs are answered. What waits is sent when the
// window opens, byte by byte if need be, and nothing is lost. The end needs no window.
func TestStreamWindow(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial(10)
	slow, stream := p.open(1, streams)
	batch, payload := event(30)
	w.write(slow, batch, true)
	if got := slow.stream().Window(); got != exchange.StreamWindow {
		t.Errorf("the closed window: %d", got)
	}
	got := make(map[uint32]*bytes.Buffer)
	p.data(got, 1, 10)
	// Smaller than what has been sent: the window is negative, and stays closed.
	p.window(0)
	_ = p.framer.WriteWindowUpdate(1, 5)
	p.window(1)
	quick, _ := p.open(3, streams)
	_ = p.framer.WriteWindowUpdate(3, 1000)
	p.ping()
	w.write(quick, batch, false)
	p.data(got, 3, len(payload))
	if got[1].Len() != 10 {
		t.Errorf("got %q beyond the window", got[1])
	}
	for range len(payload) - 9 { // all but three bytes: the window was -4
		_ = p.framer.WriteWindowUpdate(1, 1)
	}
	p.window(4)
	p.data(got, 1, len(payload))
	if err := drained(t, slow); err != nil {
		t.Error(err)
	}
	if got[3].String() != payload || got[1].String() != payload {
		t.Errorf("got %q and %q", got[1], got[3])
	}
	slow.End(fanout.TimedOut, true)
	w.flush(slow)
	if f, ok := p.next().(*wire.DataFrame); !ok || !f.StreamEnded() || f.Length != 0 || !<-stream.ends {
		t.Errorf("got %v, want the end of the stream", f)
	}
}

// A client that opens both windows again after each event, however small, is no flood.
func TestWindowForEachEvent(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial()
	sink, _ := p.open(1, streams)
	batch, payload := event(100)
	got := make(map[uint32]*bytes.Buffer)
	for range 2 * framesAtOnce {
		w.write(sink, batch, false)
		p.data(got, 1, len(payload))
		delete(got, 1)
		_ = p.framer.WriteWindowUpdate(1, uint32(len(payload)))
		_ = p.framer.WriteWindowUpdate(0, uint32(len(payload)))
		p.ping() // the windows are open again
	}
}

// A closed connection window parks all streams. When it opens they take turns.
func TestConnectionWindow(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial(1 << 20)
	first, _ := p.open(1, streams)
	second, _ := p.open(3, streams)
	batch, payload := event(200_000)
	for _, sink := range []*watch{first, second} {
		w.write(sink, batch, true)
	}
	got := map[uint32]*bytes.Buffer{3: {}}
	p.data(got, 1, defaultWindow)
	if got := second.stream().Window(); got != exchange.ConnectionWindow {
		t.Errorf("the closed window: %d", got)
	}
	if got[3].Len() != 0 {
		t.Errorf("%d bytes beyond the connection's window", got[3].Len())
	}
	_ = p.framer.WriteWindowUpdate(0, 1<<20)
	p.data(got, 3, turn)
	if n := got[1].Len(); n > defaultWindow+2*turn {
		t.Errorf("the first stream was sent %d bytes before the second had a turn", n)
	}
	p.data(got, 3, len(payload))
	p.data(got, 1, len(payload))
	for id, b := range got {
		if b.String() != payload {
			t.Errorf("stream %d: got %d other bytes", id, b.Len())
		}
	}
}

// A client that does not read parks its watches. Then it gets everything, in order, and memory for
// it is bounded.
func TestUnreadConnection(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial(maxWindow)
	sink, _ := p.open(1, streams)
	batch, payload := event(250_000)
	writes := w.fill(sink, batch)
	got := make(map[uint32]*bytes.Buffer)
	for n := maxFrame; n < writes*len(payload); n += maxFrame {
		p.data(got, 1, n)
		time.Sleep(time.Millisecond) //testlint:allow timer the socket fills up, which is not asserted
	}
	p.data(got, 1, writes*len(payload))
	if want := strings.Repeat(payload, writes); got[1].String() != want {
		t.Errorf("got %d other bytes", got[1].Len())
	}
	if err := drained(t, sink); err != nil {
		t.Error(err)
	}
}

// A long response gets its share of a connection whose watches always have more to send than the
// client reads.
func TestLongResponseBesideWatches(t *testing.T) {
	const length = 4 * downstream.SealedAtOnce
	for name, window := range map[string]uint32{"socket": maxWindow - defaultWindow, "window": 1} {
		t.Run(name, func(t *testing.T) {
			streams := make(chan *testStream, 1)
			w := newWorld(t, func(x *exchange.Exchange) {
				_ = x.Conn.TCP().SetWriteBuffer(64 << 10)
				if x.Target == "/list" {
					x.Response.Body = exchange.BodySlices{make([]byte, length)}
					x.Response.Turn = &testTurn{}
					return
				}
				s := newTestStream()
				x.Response.Stream = s
				streams <- s
			})
			p := w.dial()
			p.window(maxWindow)
			_ = p.framer.WriteWindowUpdate(0, window)
			var writing sync.WaitGroup
			for i := range uint32(4) {
				sink, _ := p.open(2*i+1, streams)
				writing.Go(func() { writeAlways(w, sink) })
			}
			p.get(9, "/list")
			list, others := 0, 0
			for frames := 0; list < length; frames++ {
				d, ok := p.next().(*wire.DataFrame)
				switch {
				case !ok:
				case d.StreamID == 9:
					list += len(d.Data())
				default:
					others += len(d.Data())
				}
				if others > 40*length {
					t.Fatalf("the response was sent %d bytes of %d, the watches %d", list, length, others)
				}
				if ok && window == 1 {
					_ = p.framer.WriteWindowUpdate(0, d.Length)
				}
				if frames%10 == 0 {
					time.Sleep(time.Millisecond) //testlint:allow timer the socket fills up, which is not asserted
				}
			}
			p.conn.Close()
			writing.Wait()
		})
	}
}

// writeAlways writes to a watch until the client leaves, as a shard that always has more to write.
func writeAlways(w *world, sink *watch) {
	for {
		batch, _ := event(250_000)
		blocked, err := sink.Write(batch)
		w.flush(sink)
		if blocked {
			err = drained(w.t, sink)
		}
		if err != nil {
			return
		}
	}
}

// What is due for many watches of a connection leaves in one TLS record.
func TestOneRecord(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial()
	var sinks []*watch
	for i := range 50 {
		sink, _ := p.open(uint32(2*i+1), streams)
		sinks = append(sinks, sink)
	}
	p.ping() // everything sent so far has been read
	records := p.tap.records()
	batch, payload := event(100)
	for _, sink := range sinks {
		if blocked, err := sink.Write(batch); blocked || err != nil {
			t.Fatalf("blocked %v, %v", blocked, err)
		}
	}
	w.flush(sinks[0])
	got := make(map[uint32]*bytes.Buffer)
	for i := range sinks {
		p.data(got, uint32(2*i+1), len(payload))
	}
	if n := p.tap.records() - records; n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

// A client that resets its stream or leaves ends the watch. Other streams go on.
func TestClientLeaves(t *testing.T) {
	w, streams := watchAll(t)
	client := w.client()
	var ends []*testStream
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, w.url("/watch"), nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := <-streams
		ends = append(ends, s)
		if len(ends) == 1 {
			cancel()
			<-s.ends
		}
	}
	sink := <-ends[1].sinks
	if _, err := sink.Write(chunk("1")); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	client.CloseIdleConnections()
	w.conns.CloseAll()
	if <-ends[1].ends {
		t.Error("complete, on a closed connection")
	}
	if _, err := sink.Write(chunk("1")); !errors.Is(err, errLeft) {
		t.Errorf("a write after the end: %v", err)
	}
}

// A watch that cannot be completed is reset, which clients notice.
func TestIncompleteWatch(t *testing.T) {
	w, streams := watchAll(t)
	resp, err := w.client().Get(w.url("/watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := <-streams
	(<-s.sinks).End(fanout.ShutDown, false)
	if _, err := io.ReadAll(resp.Body); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
		t.Errorf("got %v, want INTERNAL_ERROR", err)
	}
	<-s.ends
}

// newCache returns a cache without objects at resourceVersion 100, and the Flusher of its watches,
// which runs until the test ends.
func newCache(t *testing.T) (*fanout.Cache, *fanout.Flusher) {
	t.Helper()
	flusher := fanout.NewFlusher(2, 0, fanout.NewMetrics(metrics.NewSet()))
	cache := fanout.NewCache(fanout.Limits{HistoryEvents: 1000, HistoryBytes: 64 << 20, ClientFrames: 1000, ClientBytes: 64 << 20}, flusher)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); flusher.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	if _, err := cache.Replace(nil, 100, time.Now()); err != nil {
		t.Fatal(err)
	}
	return cache, flusher
}

// subscribed is a watch of a cache.
type subscribed struct {
	flusher *fanout.Flusher
	sub     *fanout.Subscription
	began   chan struct{}
}

func (s *subscribed) Begin(sink fanout.Sink) {
	s.flusher.Start(s.sub, sink)
	s.began <- struct{}{}
}
func (s *subscribed) Gone()                   { s.sub.End(fanout.Ending{Reason: fanout.Gone}) }
func (s *subscribed) Keep(int64) bool         { return true }
func (s *subscribed) Evict(fanout.State)      {}
func (s *subscribed) End(fanout.Reason, bool) {}

// A stream takes no more memory than its comment demands, because there may be very many.
func TestStreamSize(t *testing.T) {
	if got := unsafe.Sizeof(stream{}); got > 80 {
		t.Errorf("%d bytes", got)
	}
}
