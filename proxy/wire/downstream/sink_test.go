package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// tapConn keeps what is read from it.
type tapConn struct {
	net.Conn
	raw bytes.Buffer
}

func (c *tapConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.raw.Write(p[:n])
	return n, err
}

// testSink is a sink whose End and Drain can be waited for.
type testSink struct {
	*sink
	endc <-chan bool // gets whether the response is complete
}

// testWatch is a sink's watch. It panics at its eviction.
type testWatch struct {
	exchange.Stream
	endc          chan bool
	gone, dropped chan bool // a call of Drop follows a panic of End; nil for no panic
}

func (w testWatch) Gone()              { w.gone <- true }
func (w testWatch) Drop()              { w.dropped <- true }
func (w testWatch) Evict(fanout.State) { panic("evicted") }

func (w testWatch) End(_ fanout.Reason, complete bool) {
	if w.dropped != nil {
		panic("ended")
	}
	w.endc <- complete
}

func (s testSink) drain() error {
	errc := make(chan error, 1)
	s.Drain(func(err error) { errc <- err })
	return <-errc
}

// sinkWay is what a test of sinks is run over.
type sinkWay struct {
	secure, polled bool
	keys           io.Writer // gets the client's keys of TLS; nil for none
}

// sinkPair returns a sink whose socket takes little, and the client's end.
func sinkPair(t *testing.T, way sinkWay) (s testSink, served net.Conn, client net.Conn, tap *tapConn) {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if way.polled {
		go p.Run(ctx)
	} else {
		cancel()
		p.Run(ctx) // closes it
	}
	client, c := proxytest.TCPPair(t)
	_ = c.SetWriteBuffer(4096)
	_ = client.SetDeadline(time.Now().Add(steady.Patience))
	served = c
	tap = &tapConn{Conn: client}
	client = tap
	if way.secure {
		served = tls.Server(&gatherConn{arrivingConn: arrivingConn{TCPConn: c}}, &tls.Config{Certificates: []tls.Certificate{proxytest.ServerCertificate()}, DynamicRecordSizingDisabled: true})
		secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: way.keys})
		client = secured
		handshake := make(chan error, 1)
		go func() { handshake <- secured.Handshake() }()
		if err := served.(*tls.Conn).Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-handshake; err != nil {
			t.Fatal(err)
		}
	}
	watch := testWatch{endc: make(chan bool, 1)}
	return testSink{NewSink(served, p, framing.LastChunk, proxytest.Guard(), watch), watch.endc}, served, client, tap
}

// beganPair is sinkPair with a response that has begun.
func beganPair(t *testing.T, way sinkWay) (s testSink, served net.Conn, client net.Conn, tap *tapConn) {
	t.Helper()
	s, served, client, tap = sinkPair(t, way)
	if err := s.Begin([]byte("head"), func() {}); err != nil {
		t.Fatal(err)
	}
	return s, served, client, tap
}

// sinkWays runs a test over plaintext and over TLS, polled and, as where there is no epoll, not.
func sinkWays(t *testing.T, test func(t *testing.T, way sinkWay)) {
	t.Run("plaintext", func(t *testing.T) { test(t, sinkWay{polled: true}) })
	t.Run("TLS", func(t *testing.T) { test(t, sinkWay{secure: true, polled: true}) })
	t.Run("plaintext unpolled", func(t *testing.T) { test(t, sinkWay{}) })
	t.Run("TLS unpolled", func(t *testing.T) { test(t, sinkWay{secure: true}) })
}

// A sink never waits, keeps the rest of one batch, and loses and reorders nothing.
func TestSinkBytes(t *testing.T) {
	sinkWays(t, func(t *testing.T, way sinkWay) {
		rnd := steady.Rand(t)
		s, _, client, _ := sinkPair(t, way)
		const head = "HTTP/1.1 200 OK\r\n\r\n"
		if err := s.Begin([]byte(head), func() {}); err != nil {
			t.Fatal(err)
		}
		want := []byte(head)
		var reader sync.WaitGroup
		defer reader.Wait()
		got := make(chan []byte, 1)
		var received atomic.Int64
		read := sync.OnceFunc(func() {
			reader.Go(func() {
				var all []byte
				buf := make([]byte, 20000)
				for !bytes.HasSuffix(all, []byte("0\r\n\r\n")) {
					n, err := client.Read(buf)
					all = append(all, buf[:n]...)
					received.Store(int64(len(all)))
					if err != nil {
						break
					}
				}
				got <- all
			})
		})
		parks := 0
		for range 60 {
			batch := randomBatch(rnd, 1+rnd.IntN(1100), 1+rnd.IntN(400))
			want = append(want, bytes.Join(batch, nil)...)
			blocked, err := s.Write(batch) // waits for nobody: the client may not read yet
			if err != nil {
				t.Fatal(err)
			}
			for i := range batch {
				batch[i] = []byte("the flusher uses its slice again")
			}
			if blocked {
				parks++
				read()
				if err := s.drain(); err != nil {
					t.Fatal(err)
				}
			}
		}
		read()
		steady.UntilTrue(t, "room for the last bytes", func() bool { return received.Load() == int64(len(want)) })
		s.End(fanout.TimedOut, true)
		if !<-s.endc {
			t.Fatal("the response is not complete")
		}
		want = append(want, "0\r\n\r\n"...)
		if got := <-got; !bytes.Equal(got, want) {
			t.Errorf("client got %d bytes, want %d, or others", len(got), len(want))
		}
		if parks == 0 {
			t.Error("the socket took everything at once")
		}
	})
}

// A reader reads all that its client sends, and is called again for each time that more comes.
func TestSinkReads(t *testing.T) {
	sinkWays(t, func(t *testing.T, way sinkWay) {
		s, served, client, _ := sinkPair(t, way)
		var got []byte
		var calls, running, bytesRead atomic.Int32
		left := make(chan error, 1)
		var read func()
		read = func() {
			calls.Add(1)
			if running.Add(1) > 1 {
				t.Error("two readers at a time")
			}
			buf := make([]byte, 7)
			for {
				n, err := s.Read(buf)
				got = append(got, buf[:n]...)
				bytesRead.Add(int32(n))
				if errors.Is(err, os.ErrDeadlineExceeded) {
					running.Add(-1)
					s.ReadAgain(read)
					return
				}
				if err != nil {
					left <- err
					return
				}
			}
		}
		if err := s.Begin([]byte("head"), read); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := range 300 {
			sent := bytes.Repeat([]byte{byte(i)}, 1+i%20)
			want = append(want, sent...)
			if _, err := client.Write(sent); err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				steady.UntilTrue(t, "reader that has nothing left", func() bool {
					return int(bytesRead.Load()) == len(want) && (running.Load() == 0 || !way.polled)
				})
			}
		}
		if c, ok := client.(*tls.Conn); ok {
			_ = c.CloseWrite()
		} else {
			_ = client.(*tapConn).Conn.(*net.TCPConn).CloseWrite()
		}
		if err := steady.Receive(t, "call of the reader for the end", left); err != io.EOF || !bytes.Equal(got, want) {
			t.Errorf("%v, %d bytes, want %d, or others", err, len(got), len(want))
		}
		if n := calls.Load(); way.polled && n < 3 || !way.polled && n != 1 {
			t.Errorf("the reader was called %d times", n)
		}
		s.End(fanout.Gone, false)
		<-s.endc
		_ = served.Close()
	})
}

// A batch under TLS leaves in as few records as possible, and after the watch the connection writes
// as usual.
func TestSinkRecords(t *testing.T) {
	s, served, client, tap := beganPair(t, sinkWay{secure: true, polled: true})
	buf := make([]byte, 5000)
	if _, err := io.ReadFull(client, buf[:4]); err != nil {
		t.Fatal(err)
	}
	tap.raw.Reset()
	if blocked, err := s.Write(slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 100)}, 50)); blocked || err != nil {
		t.Fatal(blocked, err)
	}
	if _, err := io.ReadFull(client, buf); err != nil {
		t.Fatal(err)
	}
	records := 0
	for raw := tap.raw.Bytes(); len(raw) >= 5; records++ {
		raw = raw[min(len(raw), 5+int(raw[3])<<8+int(raw[4])):]
	}
	if records != 1 {
		t.Errorf("%d records for a batch of 5 kB", records)
	}
	s.End(fanout.TimedOut, true)
	if !<-s.endc {
		t.Fatal("the response is not complete")
	}
	if _, err := io.WriteString(served, "next"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, buf[:9]); err != nil || string(buf[:9]) != "0\r\n\r\nnext" {
		t.Errorf("got %q, %v", buf[:9], err)
	}
}

// A client that is gone, or cut off, ends its own writes and its own Drain.
func TestSinkClientGone(t *testing.T) {
	sinkWays(t, func(t *testing.T, way sinkWay) {
		reset := func(_ net.Conn, tap *tapConn) {
			_ = tap.Conn.(*net.TCPConn).SetLinger(0)
			tap.Conn.Close()
		}
		leave := map[string]func(served net.Conn, tap *tapConn){"reset": reset, "reset while blocked": reset}
		if !way.polled { // otherwise whoever closes it ends the subscription too
			leave["closed here while blocked"] = func(served net.Conn, _ *tapConn) { TCPConn(served).Close() }
		}
		for how, leave := range leave {
			t.Run(how, func(t *testing.T) {
				s, served, _, tap := beganPair(t, way)
				if how == "reset" {
					leave(served, tap)
				}
				blocked, err := false, error(nil)
				for !blocked && err == nil {
					blocked, err = s.Write([][]byte{make([]byte, 64<<10)})
				}
				if how == "reset" && err == nil || how != "reset" && err != nil {
					t.Fatalf("a write: blocked %v, %v", blocked, err)
				}
				if how != "reset" {
					time.AfterFunc(50*time.Millisecond, func() { leave(served, tap) }) //testlint:allow timer the drain waits by then, which is not asserted
					if err := s.drain(); err == nil {
						t.Error("Drain did not fail")
					}
				}
				s.End(fanout.Gone, false)
				if <-s.endc {
					t.Error("the response is complete")
				}
			})
		}
	})
}

// A stream that is to end completely, and can't, is not complete.
func TestSinkEndBlocked(t *testing.T) {
	sinkWays(t, func(t *testing.T, way sinkWay) {
		s, _, _, _ := beganPair(t, way)
		for blocked := false; !blocked; {
			var err error
			if blocked, err = s.Write([][]byte{make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		s.End(fanout.TimedOut, true)
		if <-s.endc {
			t.Error("the response is complete")
		}
	})
}

// A client that makes room at the very moment at which the socket has none is not forgotten.
func TestSinkRoom(t *testing.T) {
	sinkWays(t, func(t *testing.T, way sinkWay) {
		s, _, client, _ := beganPair(t, way)
		const rounds, size = 300, 64 << 10
		read := make(chan error, 1)
		go func() {
			_, err := io.CopyN(io.Discard, client, int64(len("head")+rounds*size))
			read <- err
		}()
		blocks := 0
		for range rounds {
			blocked, err := s.Write([][]byte{make([]byte, size)})
			if err == nil && blocked {
				blocks++
				err = s.drain()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := <-read; err != nil || blocks == 0 {
			t.Errorf("%v, blocked %d times", err, blocks)
		}
	})
}

// panickingRaw is a socket that panics.
type panickingRaw struct{}

func (panickingRaw) Control(func(uintptr)) error    { panic("control") }
func (panickingRaw) Read(func(uintptr) bool) error  { panic("read") }
func (panickingRaw) Write(func(uintptr) bool) error { panic("write") }

// The flusher's shards and the poller serve all watches: a panic in one watch's sink is that
// watch's error.
func TestPanicInSink(t *testing.T) {
	for _, polled := range []bool{true, false} {
		s, _, _, _ := sinkPair(t, sinkWay{polled: polled})
		if !polled {
			s.poller = nil
		}
		watch := testWatch{gone: make(chan bool, 4), dropped: make(chan bool, 4)}
		s.watch, s.raw = watch, panickingRaw{}
		if blocked, err := s.Write([][]byte{[]byte("event")}); blocked || !errors.Is(err, exchange.ErrPanicked) {
			t.Errorf("Write: %t, %v", blocked, err)
		}
		drained := make(chan error, 1)
		s.Drain(func(err error) { drained <- err })
		if err := <-drained; !errors.Is(err, exchange.ErrPanicked) {
			t.Errorf("Drain: %v", err)
		}
		again := func() { s.sink.drain(nil, func(err error) { drained <- err }) }
		s.again.Store(&again)
		s.writable()
		if err := <-drained; !errors.Is(err, exchange.ErrPanicked) {
			t.Errorf("writable: %v", err)
		}
		read := func() { panic("read") }
		s.read.Store(&read)
		s.readable()
		<-watch.gone
		s.Evicted(fanout.State{})
		s.End(fanout.Gone, false)
		<-watch.dropped
	}
}
