package downstream

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A shared writer never waits, loses and reorders nothing, and says when the socket has room again.
func TestSharedWriter(t *testing.T) {
	for name, polled := range map[string]bool{"polled": true, "unpolled": false} {
		t.Run(name, func(t *testing.T) {
			s, served, client, _ := sinkPair(t, sinkWay{secure: true, polled: polled})
			roomc := make(chan struct{}, 1)
			w := NewSharedWriter(served.(*tls.Conn), s.poller, proxytest.Guard(), func() { roomc <- struct{}{} })
			defer w.Close()
			var want bytes.Buffer
			got := make(chan []byte, 1)
			rng := steady.Rand(t)
			reading := false
			blockedOnce := false
			for range 300 {
				part := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(40_000))
				w.Add(part[:len(part)/2])
				w.Add(nil)
				w.Add(part[len(part)/2:])
				want.Write(part)
				if w.Due() != len(part) {
					t.Errorf("%d bytes are due, want %d", w.Due(), len(part))
				}
				blocked, err := w.Flush()
				for blocked && err == nil {
					if blockedOnce = true; !reading {
						reading = true
						go func() {
							all, _ := io.ReadAll(client)
							got <- all
						}()
					}
					steady.Receive(t, "room", roomc)
					blocked, err = w.Flush()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !blockedOnce {
				t.Fatal("the socket took everything at once")
			}
			w.Finish()
			served.Close()
			if all := <-got; !bytes.Equal(all, want.Bytes()) {
				t.Errorf("got %d bytes, want %d", len(all), want.Len())
			}
		})
	}
}

// Connections that carry several requests at a time end in their own way when the proxy stops,
// those that come later too.
func TestSharedConnections(t *testing.T) {
	cs := NewConnections(0, account.New(account.Limits{}))
	ended := make(chan int, 2)
	early, late := new(net.TCPConn), new(net.TCPConn)
	cs.Shared(early, func() { ended <- 1 })
	cs.BeginClosing()
	cs.BeginClosing()
	cs.Shared(late, func() { ended <- 2 })
	if first, second := <-ended, <-ended; first != 1 || second != 2 || len(ended) != 0 {
		t.Errorf("ended %d, %d and %d more", first, second, len(ended))
	}
	cs.Closed(early)
	select {
	case <-cs.Empty:
		t.Error("empty with a connection open")
	default:
	}
	cs.Closed(late)
	<-cs.Empty
}

// Where the socket cannot be polled, room that comes before anyone waits for it is not missed.
func TestSharedWriterRoomBeforeWait(t *testing.T) {
	s, served, client, _ := sinkPair(t, sinkWay{secure: true})
	roomc := make(chan struct{}, 1)
	w := NewSharedWriter(served.(*tls.Conn), s.poller, proxytest.Guard(), func() { roomc <- struct{}{} })
	defer w.Close()
	const size = 1 << 20
	if err := w.gather.seal(w.tls, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.raw.Control(w.try); err != nil || !w.gather.hasRest() {
		t.Fatalf("the socket took everything at once, %v", err)
	}
	part, err := io.CopyN(io.Discard, client.(*tls.Conn).NetConn(), int64(w.gather.written)) // all that the socket took
	if err != nil {
		t.Fatal(err)
	}
	go w.await(w.room)
	rest := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, client.(*tls.Conn).NetConn())
		rest <- n
	}()
	steady.Receive(t, "room", roomc)
	if w.gather.hasRest() {
		t.Error("there is room, and a rest")
	}
	served.Close()
	if n := part + <-rest; n < size {
		t.Errorf("the client got %d bytes of %d", n, size)
	}
}
