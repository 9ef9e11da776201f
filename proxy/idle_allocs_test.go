//go:build !race

package proxy_test

// The race detector has larger frames: make unit runs this without it.

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// The goroutine that reads an idle HTTP/2 connection has a stack of 8 KiB.
func TestIdleConnectionAllocs(t *testing.T) {
	const conns, most = 100, 9 << 10
	f := startFan(t, proxytest.NewServer(t), both, shortDrain)
	f.cms.Put("ns", "a", "1")
	f.idleConnections(5)
	before := stacks()
	f.idleConnections(conns)
	if each := (stacks() - before) / conns; each > most {
		t.Errorf("%d bytes of stack for each connection, want at most %d", each, most)
	}
}
