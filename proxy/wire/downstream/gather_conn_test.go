package downstream

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// gatherPair returns a connection that holds, and its client.
func gatherPair(t *testing.T) (g *gatherConn, client net.Conn) {
	client, c := proxytest.TCPPair(t)
	g = &gatherConn{arrivingConn: arrivingConn{TCPConn: c}}
	g.hold()
	return g, client
}

// flush writes what the socket takes.
func flush(t *testing.T, g *gatherConn) {
	raw, err := g.TCPConn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if err := g.writeTo(fd); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Error(err)
	}
}

// TLS's own answers to a client that reads none of them are bounded. Those that it reads are not
// counted, and neither are those of a batch that another writes or drops.
func TestGatheredAnswers(t *testing.T) {
	g, _ := gatherPair(t)
	answer := make([]byte, maxAnswers)[:27]
	for range 3 {
		for range maxAnswers / len(answer) {
			if _, err := g.Write(answer); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, g)
	}
	for _, end := range []func(){func() { giveBack(g.sealedBytes()) }, func() { g.release(true) }} {
		for range 2 {
			g.hold()
			if _, err := g.Write(answer[:maxAnswers*2/3]); err != nil {
				t.Fatal(err)
			}
			end()
		}
	}
	g.hold()
	var err error
	for range 2 * maxAnswers / len(answer) {
		_, err = g.Write(answer)
	}
	if !errors.Is(err, errAnswers) || len(*g.sealed) > maxAnswers {
		t.Errorf("%d bytes wait, %v", len(*g.sealed), err)
	}
}

// A connection that has written everything keeps no buffer.
func TestGatheredBufferGivenBack(t *testing.T) {
	g, _ := gatherPair(t)
	if _, err := g.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	flush(t, g)
	if g.sealed != nil || g.one[0] != nil {
		t.Error("the buffer is kept")
	}
}

// A buffer of which the socket takes only a part at a time has all its room afterwards.
func TestGatheredBufferWhole(t *testing.T) {
	g, client := gatherPair(t)
	_ = g.TCPConn.SetWriteBuffer(4096)
	record := bytes.Repeat([]byte("x"), 16<<10)
	g.sealing.Store(true) // what is written is no answer of TLS
	for range 20 {
		if _, err := g.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	buf := g.sealed
	before := cap(*buf)
	read, parts := make([]byte, 64<<10), 0
	for g.hasRest() {
		flush(t, g)
		if parts++; parts == 1 && !g.hasRest() {
			t.Fatal("the socket took everything at once")
		}
		if _, err := client.Read(read); err != nil {
			t.Fatal(err)
		}
	}
	if after := cap(*buf); after != before {
		t.Errorf("room for %d bytes, had %d", after, before)
	}
}
