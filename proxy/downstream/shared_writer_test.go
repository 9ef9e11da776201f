package downstream

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// A shared writer never waits, loses and reorders nothing, and says when the socket has room again.
func TestSharedWriter(t *testing.T) {
	for name, polled := range map[string]bool{"polled": true, "unpolled": false} {
		t.Run(name, func(t *testing.T) {
			s, served, client, _ := sinkPair(t, sinkWay{secure: true, polled: polled})
			roomc := make(chan struct{}, 1)
			w, err := NewSharedWriter(served, s.poller, func() { roomc <- struct{}{} })
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var want bytes.Buffer
			got := make(chan []byte, 1)
			reading := false
			blockedOnce := false
			for range 300 {
				part := bytes.Repeat([]byte{byte(rand.Uint32())}, rand.IntN(3000))
				w.Add(part[:len(part)/2], nil, part[len(part)/2:])
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
					select {
					case <-roomc:
					case <-time.After(10 * time.Second):
						t.Fatal("no room")
					}
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
	cs := NewConnections(0)
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
