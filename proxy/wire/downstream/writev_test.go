package downstream

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// socketPair returns two connected sockets that do not block and have little memory.
func socketPair(t *testing.T) (w, r int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		t.Cleanup(func() { syscall.Close(fd) })
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4096); err != nil {
			t.Fatal(err)
		}
	}
	return fds[0], fds[1]
}

// randomBatch returns n slices, some of them empty.
func randomBatch(rnd *rand.Rand, n, size int) [][]byte {
	batch := make([][]byte, n)
	for i := range batch {
		if rnd.IntN(4) == 0 {
			continue
		}
		batch[i] = make([]byte, rnd.IntN(size))
		for j := range batch[i] {
			batch[i][j] = byte(rnd.Uint32())
		}
	}
	return batch
}

// Whatever the slices, what has been written and the rest are their concatenation, and nothing of what is shared changes.
func TestWritev(t *testing.T) {
	rnd := steady.Rand(t)
	partial := 0
	for range 200 {
		w, r := socketPair(t)
		bufs := randomBatch(rnd, rnd.IntN(2500), 1+rnd.IntN(100))
		if rnd.IntN(3) == 0 { // more than one call's worth of nothing
			bufs = slices.Insert(bufs, rnd.IntN(2)*rnd.IntN(len(bufs)+1), make([][]byte, 1100)...)
		}
		want := bytes.Join(bufs, nil)
		kept := slices.Clone(bufs)
		var got []byte
		for rest := bufs; ; {
			var err error
			if rest, err = writev(uintptr(w), rest); err != nil {
				t.Fatal(err)
			}
			if len(rest) == 0 {
				break
			}
			partial++
			if len(rest[0]) == 0 {
				t.Fatal("the rest begins with nothing")
			}
			got = readAvailable(t, r, got, 1+rnd.IntN(8000))
		}
		got = readAvailable(t, r, got, len(want)+1)
		if !bytes.Equal(got, want) {
			t.Fatalf("wrote %d bytes, want %d, or others", len(got), len(want))
		}
		if !bytes.Equal(bytes.Join(kept, nil), want) {
			t.Fatal("the shared bytes have changed")
		}
	}
	if partial == 0 {
		t.Error("no write was partial")
	}
}

// readAvailable appends at most n bytes of what has arrived.
func readAvailable(t *testing.T, fd int, got []byte, n int) []byte {
	t.Helper()
	buf := make([]byte, 4096)
	for n > 0 {
		k, err := syscall.Read(fd, buf[:min(n, len(buf))])
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EAGAIN {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:k]...)
		n -= k
	}
	return got
}

func TestWritevError(t *testing.T) {
	w, r := socketPair(t)
	if rest, err := writev(uintptr(w), nil); err != nil || len(rest) != 0 {
		t.Errorf("nothing to write: got %v, %v", rest, err)
	}
	if err := syscall.Shutdown(r, syscall.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	rest, err := writev(uintptr(w), [][]byte{[]byte("a"), []byte("b")})
	if err != syscall.EPIPE || len(rest) != 2 {
		t.Errorf("got %d slices, %v, want 2 and %v", len(rest), err, syscall.EPIPE)
	}
}
