//go:build linux && !race

package http2

// The race detector allocates on its own account: make unit runs this without it.

import (
	"net"
	"syscall"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A delivery allocates nothing, to one stream or to many of a connection.
func TestWatchAllocs(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial(maxWindow)
	var sinks []*watch
	for i := range 50 {
		sink, _ := p.open(uint32(2*i+1), streams)
		sinks = append(sinks, sink)
	}
	raw, err := p.tap.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var trash [1 << 16]byte
	drop := func(client uintptr) bool { // what came stays sealed: to open it would allocate
		n, _, _ := syscall.Recvfrom(int(client), trash[:], syscall.MSG_TRUNC)
		return n > 0
	}
	batch, _ := event(100)
	batch = append(batch, []byte("6\r\n{\"a\":"), []byte("1\r\n")) // a chunk in two slices
	fresh := make([][]byte, len(batch))
	for _, n := range []int{1, 50} {
		if got := testing.AllocsPerRun(100, func() {
			for _, sink := range sinks[:n] {
				copy(fresh, batch)
				if blocked, err := sink.Write(fresh); blocked || err != nil {
					t.Fatalf("blocked %v, %v", blocked, err)
				}
			}
			w.flush(sinks[0])
			_ = raw.Read(drop)
		}); got > 0 {
			t.Errorf("%v allocations for an event to %d streams", got, n)
		}
	}
}

// An idle watch takes little memory. The client's part, and the subscription, are not in it.
func TestIdleMemory(t *testing.T) {
	w, streams := watchAll(t)
	before := proxytest.Heap()
	const conns = 10
	for range conns {
		p := w.dial()
		for i := range 100 {
			p.open(uint32(2*i+1), streams)
		}
	}
	each := (proxytest.Heap() - before) / (100 * conns)
	t.Logf("%d bytes for each watch at 100 on a connection, with the client's connection and the test's own", each)
	if each > 2<<10 {
		t.Errorf("%d bytes", each)
	}
}
