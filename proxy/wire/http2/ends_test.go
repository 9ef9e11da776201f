package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A connection that ends sends GOAWAY. Streams that the client has opened before it saw that are
// served. Frames of later requests are ignored, and the connection closes after the last stream.
func TestGoAway(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial()
	first, _ := p.open(1, streams)
	p.status(1)
	w.conns.BeginClosing()
	if f, ok := p.next().(*wire.GoAwayFrame); !ok || f.LastStreamID != maxWindow || f.ErrCode != wire.ErrCodeNo {
		t.Fatalf("got %v, want a first GOAWAY", f)
	}
	ping, ok := p.next().(*wire.PingFrame)
	if !ok {
		t.Fatal("no PING behind GOAWAY")
	}
	second, _ := p.open(3, streams)
	_ = p.framer.WritePing(true, ping.Data)
	if f := await[*wire.GoAwayFrame](p); f.LastStreamID != 3 || f.ErrCode != wire.ErrCodeNo {
		t.Errorf("got %v, want the last stream 3", f)
	}
	p.head(5, "POST", "/upload", false)
	_ = p.framer.WriteData(5, false, []byte("half"))
	p.headBlock(5, true, p.fields("trailer", "a"))
	p.get(7, "/watch")
	p.ping()
	batch, payload := event(10)
	w.write(second, batch, false)
	got := make(map[uint32]*bytes.Buffer)
	if p.data(got, 3, len(payload)); got[3].String() != payload {
		t.Errorf("got %q", got[3])
	}
	for _, sink := range []*watch{second, first} {
		sink.End(fanout.ShutDown, true)
		w.flush(sink)
		if f, ok := p.next().(*wire.DataFrame); !ok || !f.StreamEnded() || f.StreamID != sink.id {
			t.Fatalf("got %v, want the end of stream %d", f, sink.id)
		}
	}
	if f := p.next(); f != nil || len(streams) > 0 {
		t.Errorf("got %v, want the end of the connection; %d streams beyond the last were served", f, len(streams))
	}
}

// A GOAWAY behind the second one names the same last stream, although the client has opened more (RFC 9113,
// section 6.8).
func TestGoAwayAgain(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial()
	p.open(1, streams)
	w.conns.BeginClosing()
	await[*wire.GoAwayFrame](p)
	_ = p.framer.WritePing(true, await[*wire.PingFrame](p).Data)
	await[*wire.GoAwayFrame](p)
	p.get(3, "/watch")
	_ = p.framer.WriteWindowUpdate(0, 0)
	if f := await[*wire.GoAwayFrame](p); f.LastStreamID != 1 || f.ErrCode != wire.ErrCodeProtocol {
		t.Errorf("got %v, want the last stream 1", f)
	}
}

// A net/http client that is told to go away opens another connection, and loses no request.
func TestGoAwayLosesNothing(t *testing.T) {
	w := newWorldOf(t, 100, 50*time.Millisecond, echo)
	client := w.client()
	for w.accepted.Load() < 10 {
		if status, got, err := fetch(client, http.MethodPost, w.url("/upload"), strings.NewReader("x")); status != 200 || got != "x" || err != nil {
			t.Fatalf("got %d, %q, %v", status, got, err)
		}
	}
}

// A watch that ends at the maximum age of its connection is preceded by GOAWAY, so the client
// resumes on another connection. The other streams go on.
func TestGoAwayAtMaxAge(t *testing.T) {
	w, streams := watchAllUntil(t, time.Second)
	p := w.dial()
	first, _ := p.open(1, streams)
	second, _ := p.open(3, streams)
	steady.UntilTrue(t, "connection of that age", first.Last)
	first.End(fanout.Aged, true)
	w.flush(first)
	batch, payload := event(10)
	w.write(second, batch, false)
	toldFirst, ended, rest := false, false, ""
	for rest != payload {
		switch f := p.next().(type) {
		case *wire.GoAwayFrame:
			toldFirst = toldFirst || f.LastStreamID == maxWindow && !ended
		case *wire.DataFrame:
			if f.StreamID == 1 {
				ended = ended || f.StreamEnded()
			} else {
				rest += string(f.Data())
			}
		case nil:
			t.Fatal("the connection ended")
		}
	}
	if !ended || !toldFirst {
		t.Errorf("the first watch has ended: %t, behind a GOAWAY: %t", ended, toldFirst)
	}
}

// A client that does not read does not keep a connection from ending.
func TestUnreadEnd(t *testing.T) {
	w, streams := watchAll(t)
	sink, stream := w.dial(maxWindow).open(1, streams)
	batch, _ := event(250_000)
	w.fill(sink, batch)
	w.conns.BeginClosing()
	sink.End(fanout.ShutDown, false)
	w.flush(sink)
	<-stream.ends
	steady.Receive(t, "end of the connection", w.conns.Empty)
}

// The client of a request without a valid credential is told to go away, as kube-apiserver does.
func TestUnauthorized(t *testing.T) {
	w := newWorld(t, func(x *exchange.Exchange) { x.Response.Status = http.StatusUnauthorized })
	p := w.dial()
	p.get(1, "/")
	if f := await[*wire.MetaHeadersFrame](p); f.PseudoValue("status") != "401" {
		t.Errorf("got %v", f)
	}
	if f := await[*wire.GoAwayFrame](p); f.ErrCode != wire.ErrCodeNo {
		t.Errorf("got %v", f)
	}
}

// A body that the client sends only after 100 Continue comes, and is asked for only when it is
// read.
func TestContinue(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial()
	p.head(1, "POST", "/upload", false, "expect", "100-continue")
	if got := p.status(1); got != "100" {
		t.Fatalf("got %s", got)
	}
	_ = p.framer.WriteData(1, true, []byte("body"))
	if got := p.status(1); got != "200" {
		t.Errorf("got %s", got)
	}
	p.head(3, "POST", "/body", false, "expect", "100-continue")
	if got := p.status(3); got != "200" {
		t.Errorf("a body that nobody reads: got %s", got)
	}
}

// A response that is complete before its request tells the client to stop, and the windows that the
// rest of the body has taken are given back.
func TestEarlyResponse(t *testing.T) {
	p := newWorldEcho(t).dialWide()
	for id := uint32(3); id < 60; id += 2 {
		p.head(id, "POST", "/body", false)
		for range streamWindow / maxFrame {
			if p.framer.WriteData(id, false, make([]byte, maxFrame)) != nil {
				t.Fatal("the connection has ended")
			}
		}
		if f := await[*wire.RSTStreamFrame](p); f.ErrCode != wire.ErrCodeNo {
			t.Errorf("got %s", f.ErrCode)
		}
	}
}

// Any number of uploads may be answered early at the same time. What of them is under way does no
// harm.
func TestEarlyResponses(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial()
	const uploads = 3 * keptClosed
	for i := range uint32(uploads) {
		p.head(2*i+1, "POST", "/body", false)
	}
	for range uploads {
		await[*wire.RSTStreamFrame](p) // after the response
	}
	for i := range uint32(uploads) {
		_ = p.framer.WriteData(2*i+1, true, make([]byte, 1000))
	}
	p.get(2*uploads+1, "/body")
	if got := p.status(2*uploads + 1); got != "200" {
		t.Errorf("the next request: got %s", got)
	}
}

// A response whose window stays closed is given up. From then on nothing of its bytes is sent: they
// may be those of another response by then.
func TestStalledResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := unsentStream()
		began := time.Now()
		err := st.send([][]byte{[]byte("hello")}, true)
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != downstream.StallTimeout {
			t.Errorf("%v after %s", err, took)
		}
		reset := wire.NewFramer(nil, &st.control)
		if f, err := reset.ReadFrame(); err != nil || f.(*wire.RSTStreamFrame).ErrCode != wire.ErrCodeInternal {
			t.Errorf("the client gets %v, %v", f, err)
		}
		if len(st.pendingLocked()) > 0 {
			t.Error("the bytes may still be sent")
		}
	})
}

// unsentStream returns a stream of a connection whose socket is full and whose windows are closed.
func unsentStream() *stream {
	c := &conn{full: true, server: &Server{}}
	c.framer = wire.NewFramer(&c.control, nil)
	st := &stream{conn: c, id: 1}
	c.streams = openStreams{st, {conn: c, id: 3}}
	return st
}

// A client that reads steadily is cut when its response is due, which is when its request is.
func TestDueResponse(t *testing.T) {
	w := newWorld(t, func(x *exchange.Exchange) {
		x.Due = time.Now().Add(100 * time.Millisecond) //testlint:allow deadline the response is far too long for any machine
		x.Response.Body = slices.Repeat(exchange.BodySlices{make([]byte, 1<<20)}, 10_000)
	})
	p := w.dial(4096)
	p.get(1, "/")
	for {
		switch f := p.next().(type) {
		case *wire.DataFrame:
			_ = p.framer.WriteWindowUpdate(0, f.Length)
			_ = p.framer.WriteWindowUpdate(1, f.Length)
		case *wire.RSTStreamFrame:
			if f.ErrCode != wire.ErrCodeInternal {
				t.Errorf("reset with %s", f.ErrCode)
			}
			return
		case nil:
			t.Fatal("the connection ended")
		}
	}
}

// A response that waits for its turn is not given up while the client reads others.
func TestWaitingResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := unsentStream()
		st.window = 1
		looks, began := 0, time.Now()
		st.mu.Lock()
		err := st.awaitLocked(func() bool { // looks at least once in each stall
			st.conn.sent++
			looks++
			return looks >= 10
		})
		st.unlock()
		if err != nil || time.Since(began) < 2*downstream.StallTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The window that bodies of watches have taken is given back at once, although nothing else is sent.
func TestUnreadBodiesOfWatches(t *testing.T) {
	came := make(chan struct{})
	w := newWorld(t, func(x *exchange.Exchange) {
		x.Conn.EndArrival()
		<-came
		x.Response.Stream = newTestStream()
	})
	p := w.dialWide()
	const streams = connWindow / 4 / streamWindow
	for id := uint32(3); id < 3+2*streams; id += 2 {
		p.head(id, "POST", "/watch", false)
		for range streamWindow / maxFrame {
			_ = p.framer.WriteData(id, false, make([]byte, maxFrame))
		}
	}
	p.ping()
	close(came)
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			t.Fatalf("the window is not given back: %v", err)
		}
		if u, ok := f.(*wire.WindowUpdateFrame); ok && u.StreamID == 0 {
			return
		}
	}
}

// A client that leaves ends what still works for it: reads of its body fail, and a response that
// lasts is told, even if it asks only then.
func TestGone(t *testing.T) {
	results, began := make(chan error, 2), make(chan struct{})
	w := newWorld(t, func(x *exchange.Exchange) {
		if x.Target == "/upload" {
			_, err := io.ReadAll(x.Body)
			if !x.Conn.Left() {
				err = errors.New("the client has not left")
			}
			results <- err
			return
		}
		client, late := x.Conn, x.Target == "/late"
		x.Response.Detached = func(to exchange.Responder) {
			ctx, cancel := context.WithCancel(context.Background())
			if late {
				began <- struct{}{}
				steady.UntilTrue(t, "end of the client", client.Left)
			}
			if to.OnGone(cancel); !late {
				began <- struct{}{}
			}
			<-ctx.Done()
			results <- nil
		}
	})
	p := w.dial()
	p.head(1, "POST", "/upload", false)
	_ = p.framer.WriteData(1, false, []byte("half"))
	_ = p.framer.WriteRSTStream(1, wire.ErrCodeCancel)
	if err := <-results; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the read of a body that breaks off: %v", err)
	}
	for i, target := range []string{"/detached", "/late"} {
		p.get(uint32(2*i+3), target)
		<-began
	}
	p.conn.Close()
	<-results
	<-results
}

// heldSlot tells when it is released.
type heldSlot struct{ released chan struct{} }

func (s heldSlot) Release() {
	select {
	case s.released <- struct{}{}:
	default:
	}
}

// A slot is held until the last byte of a body that comes little by little: it may be a watch that is
// passed through. A body that is there already needs no slot.
func TestSlot(t *testing.T) {
	slot := heldSlot{make(chan struct{}, 1)}
	bodies := make(chan *io.PipeWriter, 1)
	w := newWorld(t, func(x *exchange.Exchange) {
		x.Slot = slot
		if x.Target == "/body" {
			x.Response.Body = exchange.BodySlices{[]byte("hello")}
			return
		}
		r, w := io.Pipe()
		x.Response.Reader, x.Response.Length = r, -1
		bodies <- w
	})
	p := w.dial(5)
	p.get(1, "/reader")
	body := <-bodies
	_, _ = io.WriteString(body, "hello")
	got := make(map[uint32]*bytes.Buffer)
	p.data(got, 1, len("hello"))
	select {
	case <-slot.released:
		t.Error("the slot is released within the body")
	default:
	}
	body.Close()
	<-slot.released
	p.window(0)
	p.get(3, "/body")
	<-slot.released
}

// A panic in what sends ends the connection and nothing else. It leaves nothing locked: a shard
// waits for the same lock.
func TestPanicInSend(t *testing.T) {
	for name, send := range map[string]func(w *watch){
		"rest":  func(w *watch) { w.conn.goOn() },
		"end":   func(w *watch) { w.End(fanout.ShutDown, false) },
		"reset": (*watch).giveUp,
		"drain": func(w *watch) { w.conn.goAway() },
	} {
		t.Run(name, func(t *testing.T) {
			w, streams := watchAll(t)
			p := w.dial()
			sink, stream := p.open(1, streams)
			other, otherStream := p.open(3, streams)
			c := sink.conn
			c.mu.Lock()
			c.ready = append(c.ready, nil)
			c.mu.Unlock()
			send(sink)
			if <-stream.ends || <-otherStream.ends {
				t.Error("complete")
			}
			if _, err := other.Write(chunk("1")); !errors.Is(err, errLeft) {
				t.Errorf("a write after it: %v", err)
			}
		})
	}
}

// The last bytes of a watch whose window is closed do not wait for ever.
func TestLastBytes(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial(0)
	sink, _ := p.open(1, streams)
	batch, _ := event(1000)
	w.write(sink, batch, true)
	began := time.Now()
	sink.End(fanout.TimedOut, true)
	w.flush(sink)
	reset := await[*wire.RSTStreamFrame](p)
	if reset.ErrCode != wire.ErrCodeInternal || time.Since(began) < lastBytesTimeout { //testlint:allow elapsed no machine is too fast
		t.Errorf("got %v after %v", reset, time.Since(began))
	}
}

// Frames that come together are answered together, and the last frame need not be whole for that.
func TestFramesReadAhead(t *testing.T) {
	p := newWorld(t, func(*exchange.Exchange) {}).dial()
	p.ping()
	const pings = maxReplies // 1,700 bytes
	var frames bytes.Buffer
	framer := wire.NewFramer(&frames, nil)
	for i := range pings {
		_ = framer.WritePing(false, [8]byte{2, byte(i)})
	}
	whole := frames.Len()
	_ = framer.WritePing(false, [8]byte{3})
	before := p.tap.records()
	for _, half := range [][]byte{frames.Bytes()[:whole+5], frames.Bytes()[whole+5:]} {
		if _, err := p.conn.Write(half); err != nil {
			t.Fatal(err)
		}
		want := [8]byte{3}
		if len(half) > whole {
			want = [8]byte{2, pings - 1}
		}
		p.pinged(want)
	}
	if n := p.tap.records() - before; n > 4 {
		t.Errorf("%d pings were answered in %d records", pings+1, n)
	}
}
