//go:build linux

package fanout_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/watchfan/watchfan/framing"
)

// writerEnv says in the child which writer to be, and for how many clients: "flusher 100". It reads orders from file descriptor 3 and reports to 4.
const writerEnv = "WRITERS_WRITER"

// An eventWriter writes events to clients.
type eventWriter interface {
	// accept takes the next client over.
	accept(*net.TCPListener) error
	// append has all clients get an event.
	append(framing.Event) error
	// stop closes all connections and leaves nothing behind.
	stop()
	// clients are those accepted.
	clients() []*writerClient
}

// writerClient is what each writer counts for a client.
type writerClient struct {
	events, writes atomic.Uint64 // events: written completely
}

// wrote counts a write that completes events.
func (c *writerClient) wrote(events int) {
	c.events.Add(uint64(events))
	c.writes.Add(1)
}

// writerState is what the child reports.
type writerState struct {
	Address           netip.AddrPort
	RSS, Sys, Memory  int64 // resident; obtained from the system; of reachable objects and stacks
	Goroutines, Files int
	Appended, Writes  uint64
	Behind            int // clients that some events have not been written to
}

func newWriter(name string) (eventWriter, error) {
	switch name {
	case "goroutine":
		return &goroutineWriter{log: newChannelLog()}, nil
	case "goroutine-cond":
		return &goroutineWriter{log: newCondLog()}, nil
	case "flusher":
		return newFlusherWriter(runtime.GOMAXPROCS(0))
	case "flusher-1":
		return newFlusherWriter(1)
	case "epoll":
		return newEpollWriter(runtime.GOMAXPROCS(0), false)
	case "epoll-1":
		return newEpollWriter(1, false)
	case "epoll-blocks":
		return newEpollWriter(runtime.GOMAXPROCS(0), true)
	}
	return nil, fmt.Errorf("no writer is called %q", name)
}

// runWriter is the child's life.
func runWriter(b *testing.B, config string) {
	var name string
	var clients int
	if _, err := fmt.Sscan(config, &name, &clients); err != nil {
		b.Fatal(err)
	}
	w, err := newWriter(name)
	if err != nil {
		b.Fatal(err)
	}
	defer w.stop()
	listener, err := (&net.ListenConfig{KeepAlive: -1}).Listen(b.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	c := writerChild{b: b, writer: w, reports: json.NewEncoder(os.NewFile(4, "reports")), form: newEventForm()}
	c.state.Address = listener.Addr().(*net.TCPAddr).AddrPort()
	c.report()
	for range clients {
		if err := w.accept(listener.(*net.TCPListener)); err != nil {
			b.Fatal(err)
		}
	}
	c.report()
	if err := syscall.SetNonblock(3, true); err != nil { // so that the runtime's poller waits for it, as for upstream's socket
		b.Fatal(err)
	}
	if err := c.carryOut(os.NewFile(3, "orders")); err != nil {
		b.Fatal(err)
	}
}

type writerChild struct {
	b       *testing.B
	writer  eventWriter
	reports *json.Encoder
	form    eventForm
	state   writerState
}

const orderLen = 16

// appendOrder appends an order: a number of events up to which events are to be appended, 0 for a report, and the time.
func appendOrder(dst []byte, n uint64, now time.Time) []byte {
	return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(dst, n), uint64(now.UnixNano()))
}

// carryOut does as it is told until there are no more orders.
func (c *writerChild) carryOut(orders io.Reader) error {
	in := bufio.NewReader(orders)
	scanner := framing.NewScanner(framing.JSON, fieldPaths)
	chunk := make([]byte, len(c.form.chunk))
	for {
		var order [orderLen]byte
		if _, err := io.ReadFull(in, order[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n, at := binary.NativeEndian.Uint64(order[:]), int64(binary.NativeEndian.Uint64(order[8:]))
		if n == 0 {
			c.report()
		}
		for c.state.Appended < n {
			c.state.Appended++
			c.form.put(chunk, c.state.Appended, at)
			ev, err := scanner.Event(c.form.line(chunk))
			if err != nil {
				return err
			}
			if err := c.writer.append(ev); err != nil {
				return err
			}
		}
	}
}

func (c *writerChild) report() {
	s := &c.state
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Sys, s.Memory = int64(m.Sys-m.HeapReleased), int64(m.HeapAlloc+m.StackInuse)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		c.b.Fatal(err)
	}
	var size int64
	if _, err := fmt.Sscan(string(statm), &size, &s.RSS); err != nil {
		c.b.Fatal(err)
	}
	s.RSS *= int64(os.Getpagesize())
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.b.Fatal(err)
	}
	s.Files, s.Goroutines = len(files), runtime.NumGoroutine()
	s.Behind, s.Writes = 0, 0
	for _, client := range c.writer.clients() {
		s.Writes += client.writes.Load()
		if client.events.Load() < s.Appended {
			s.Behind++
		}
	}
	if err := c.reports.Encode(s); err != nil {
		c.b.Fatal(err)
	}
}

// leave waits until a client closes its connection or it is closed from here, which the proxy has a goroutine for, too.
func leave(conn net.Conn) {
	var p [1]byte
	_, _ = conn.Read(p[:])
}

// writev writes what the non-blocking socket fd takes of fewer than 1,024 slices and returns the rest, which shares bufs' memory.
func writev(fd int, bufs [][]byte) (rest [][]byte, err error) {
	var few [16]syscall.Iovec
	for len(bufs) > 0 {
		iovecs := few[:0]
		for _, p := range bufs {
			v := syscall.Iovec{Base: &p[0]}
			v.SetLen(len(p))
			iovecs = append(iovecs, v)
		}
		wrote, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iovecs[0])), uintptr(len(iovecs)))
		switch errno {
		case 0:
			for ; len(bufs) > 0 && int(wrote) >= len(bufs[0]); bufs = bufs[1:] {
				wrote -= uintptr(len(bufs[0]))
			}
			if wrote > 0 {
				bufs[0] = bufs[0][wrote:]
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return bufs, nil
		default:
			return bufs, errno
		}
	}
	return nil, nil
}

// cpuOf returns the user and system time of a process, from its CPU clock (clock_getcpuclockid(3)).
func cpuOf(pid int) (time.Duration, error) {
	const sched = 2
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|sched), uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, errno)
	}
	return time.Duration(t.Nano()), nil
}
