//go:build !race

package downstream

// The race detector allocates on its own account: make unit runs this without it.

import (
	"bytes"
	"net"
	"slices"
	"syscall"
	"testing"
)

// "steady-state allocations per delivery: 0".
func TestSinkAllocs(t *testing.T) {
	for _, way := range []sinkWay{{polled: true}, {secure: true, polled: true}} {
		s, _, _, tap := beganPair(t, way)
		raw, err := tap.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		trash := make([]byte, 64<<10)
		arrived := func(fd uintptr) bool { // sealed: to open it would allocate
			n, _ := syscall.Read(int(fd), trash)
			return n > 0
		}
		for _, frames := range []int{1, 2, 20} {
			batch := slices.Repeat([][]byte{[]byte("14\r\n"), bytes.Repeat([]byte("x"), 20), []byte("\r\n")}, frames)
			fresh := make([][]byte, len(batch))
			if got := testing.AllocsPerRun(200, func() {
				copy(fresh, batch) // which a sink may change
				blocked, err := s.Write(fresh)
				if err != nil {
					t.Fatal(err)
				}
				if blocked {
					t.Fatal("blocked")
				}
				if err := raw.Read(arrived); err != nil {
					t.Fatal(err)
				}
			}); got > 0 {
				t.Errorf("TLS %t: %v allocations for a batch of %d frames", way.secure, got, frames)
			}
		}
	}
}
