//go:build linux

package fanout_test

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// readers are all clients of one writer: one goroutine, one epoll. Most have what comes discarded by the kernel, so that the machine is left
// to the writer.
type readers struct {
	b    *testing.B
	form eventForm
	epfd int
	stop atomic.Bool
	done chan struct{} // closed when run has returned

	mu        sync.Mutex // held while a batch of sockets is read; guards the rest
	clients   []*readClient
	reading   int    // clients that are read
	bytes     uint64 // read by all of them
	whole     uint64 // from this byte on, streams are read and kept
	measuring bool
	latencies []int64 // nanoseconds
	buf       []byte

	goal    uint64 // bytes
	passed  int    // clients that have read as much
	reached func() // called when all have; nil when nobody waits
}

// readClient is one client's stream so far.
type readClient struct {
	fd      int
	stalled bool
	got     uint64
	sampled bool   // it keeps and compares all it reads
	kept    []byte // of an event that has not come as a whole, or of the last one
}

func newReaders(b *testing.B, form eventForm) *readers {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	r := &readers{b: b, form: form, epfd: epfd, done: make(chan struct{}), whole: math.MaxUint64, buf: make([]byte, 256<<10)}
	go r.run()
	return r
}

// close may be called twice.
func (r *readers) close() {
	if r.stop.Swap(true) {
		return
	}
	<-r.done
	syscall.Close(r.epfd)
	for _, c := range r.clients {
		syscall.Close(c.fd)
	}
}

// connect adds a client. One that is stalled has segments and a buffer as over a network, which are soon full.
func (r *readers) connect(to netip.AddrPort, stalled, sampled bool) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		r.b.Fatal(err)
	}
	set := func(level, option, value int) {
		if err == nil {
			err = syscall.SetsockoptInt(fd, level, option, value)
		}
	}
	if stalled {
		set(syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		set(syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1460)
	}
	if err == nil { // closing resets the connection, which leaves nothing in TIME_WAIT
		err = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	}
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil {
		syscall.Close(fd)
		r.b.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, &readClient{fd: fd, stalled: stalled, sampled: sampled})
	if !stalled {
		r.readLocked(len(r.clients) - 1)
	}
}

// readLocked has client i read.
func (r *readers) readLocked(i int) {
	r.reading++
	if err := syscall.EpollCtl(r.epfd, syscall.EPOLL_CTL_ADD, r.clients[i].fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}); err != nil {
		r.b.Errorf("epoll: %v", err)
	}
}

// wake has stalled clients read.
func (r *readers) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range r.clients {
		if c.stalled {
			c.stalled = false
			if err := syscall.SetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<20); err != nil {
				r.b.Error(err)
			}
			r.readLocked(i)
		}
	}
}

func (r *readers) run() {
	defer close(r.done)
	var ready [256]syscall.EpollEvent
	for !r.stop.Load() {
		n, err := syscall.EpollWait(r.epfd, ready[:], 100)
		if err != nil && err != syscall.EINTR {
			r.b.Errorf("epoll: %v", err)
			return
		}
		r.mu.Lock()
		for _, e := range ready[:max(n, 0)] {
			if c := r.clients[e.Fd]; !r.receiveLocked(c) {
				r.b.Errorf("client %d: lost after %d bytes", e.Fd, c.got)
				syscall.EpollCtl(r.epfd, syscall.EPOLL_CTL_DEL, c.fd, nil)
			}
		}
		r.mu.Unlock()
	}
}

// receiveLocked takes once what there is, and reports whether the client's stream is still good.
func (r *readers) receiveLocked(c *readClient) bool {
	flags, most := syscall.MSG_DONTWAIT, uint64(len(r.buf))
	keep := c.sampled || c.got >= r.whole
	if !keep {
		flags |= syscall.MSG_TRUNC // discards, without a copy
		most = min(1<<20, r.whole-c.got)
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&r.buf[0])), uintptr(most), uintptr(flags), 0, 0)
	if errno == syscall.EAGAIN || errno == syscall.EINTR {
		return true
	}
	if errno != 0 || n == 0 {
		return false
	}
	r.bytes += uint64(n)
	before := c.got
	c.got += uint64(n)
	if keep {
		c.kept = append(c.kept, r.buf[:n]...)
	}
	if c.sampled && !r.compareLocked(c) {
		return false
	}
	if before < r.goal && c.got >= r.goal {
		r.passed++
		r.checkGoalLocked()
	}
	return true
}

// compareLocked compares the events that have come as a whole with what they should be, but for the last of all, which check does.
func (r *readers) compareLocked(c *readClient) bool {
	now := time.Now().UnixNano()
	size := len(r.form.chunk)
	for len(c.kept) >= size {
		begin := c.got - uint64(len(c.kept))
		if begin >= r.whole {
			return true
		}
		at, ok := r.form.check(c.kept[:size], begin/uint64(size)+1)
		if !ok {
			return false
		}
		if r.measuring {
			r.latencies = append(r.latencies, now-at)
		}
		c.kept = append(c.kept[:0], c.kept[size:]...)
	}
	return true
}

// aimLocked has reached called, with mu held, once all clients have read events.
func (r *readers) aimLocked(events uint64, reached func()) {
	r.goal, r.reached, r.passed = events*uint64(len(r.form.chunk)), reached, 0
	for _, c := range r.clients {
		if !c.stalled && c.got >= r.goal {
			r.passed++
		}
	}
	r.checkGoalLocked()
}

func (r *readers) checkGoalLocked() {
	if f := r.reached; f != nil && r.passed == r.reading {
		r.reached = nil
		f()
	}
}

// each calls f, from the goroutine that reads, whenever all clients have read another n events, until it is stopped.
func (r *readers) each(n uint64, f func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var step func()
	step = func() {
		f()
		r.aimLocked(r.goal/uint64(len(r.form.chunk))+n, step)
	}
	r.aimLocked(r.goal/uint64(len(r.form.chunk))+n, step)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reached = nil
	}
}

// await waits until all clients have read events, and fails the benchmark if they don't.
func (r *readers) await(events uint64) {
	c := make(chan struct{})
	r.mu.Lock()
	r.aimLocked(events, func() { close(c) })
	r.mu.Unlock()
	select {
	case <-c:
	case <-time.After(writersPatience):
		r.mu.Lock()
		defer r.mu.Unlock()
		r.b.Fatalf("%d of %d clients have read %d events after %v", r.passed, r.reading, events, writersPatience)
	}
}

// wantWhole has every client keep the event numbered n, which is the last one.
func (r *readers) wantWhole(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = (n - 1) * uint64(len(r.form.chunk))
}

// check fails the benchmark unless the last event is the last that each client has read.
func (r *readers) check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(len(r.form.chunk))
	for i, c := range r.clients {
		if _, ok := r.form.check(c.kept, r.whole/size+1); !ok || c.got != r.whole+size {
			r.b.Errorf("client %d: has read %d bytes, want %d; the last event is right: %v", i, c.got, r.whole+size, ok)
		}
	}
}

// begin begins to take times; end returns them, in nanoseconds.
func (r *readers) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measuring = true
}

func (r *readers) end() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measuring = false
	return r.latencies
}

// delivered is how many bytes all clients have read.
func (r *readers) delivered() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// eventForm is a pod's MODIFIED event, which differs from one to the next in its resourceVersion and in the digits of its container's
// name: the time at which it was ordered.
type eventForm struct {
	chunk    []byte
	rv, time int // offsets
}

const (
	firstVersion = 1_000_000_000 // of no event; with as many digits as all that follow
	timeDigits   = 19
)

func newEventForm() eventForm {
	ev := newPods(1).event("MODIFIED", 0, firstVersion)
	chunk := ev.Object.Frame(ev.Type).Body
	rv, container := []byte(fmt.Sprintf(`"resourceVersion":"%d"`, firstVersion)), []byte(`"containerd://`)
	return eventForm{
		chunk: chunk,
		rv:    bytes.Index(chunk, rv) + len(rv) - 11,
		time:  bytes.Index(chunk, container) + len(container),
	}
}

// line returns the event of a chunk.
func (f eventForm) line(chunk []byte) []byte {
	return chunk[bytes.IndexByte(chunk, '\n')+1 : len(chunk)-len("\r\n")]
}

// put writes event n, ordered at a time, to chunk.
func (f eventForm) put(chunk []byte, n uint64, at int64) {
	copy(chunk, f.chunk)
	strconv.AppendUint(chunk[:f.rv], firstVersion+n, 10)
	strconv.AppendInt(chunk[:f.time], at, 10)
}

// check reports whether chunk is event n, and when it was ordered.
func (f eventForm) check(chunk []byte, n uint64) (at int64, ok bool) {
	if len(chunk) != len(f.chunk) {
		return 0, false
	}
	at, err := strconv.ParseInt(string(chunk[f.time:f.time+timeDigits]), 10, 64)
	want := make([]byte, len(f.chunk))
	f.put(want, n, at)
	return at, err == nil && bytes.Equal(chunk, want)
}
