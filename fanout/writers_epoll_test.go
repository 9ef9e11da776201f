//go:build linux

package fanout_test

import (
	"cmp"
	"encoding/binary"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/watchfan/watchfan/framing"
)

// epollWriter has a few loops, each with its share of the clients and an epoll, which waits for all there is to wait for: an eventfd that
// says that the list has grown, sockets that take more, clients that leave. Go's poller knows nothing of the sockets, but of the epoll: a loop
// that blocks in epoll_wait instead keeps a processor until the runtime's monitor takes it away, which costs 0.8 ms for each time that it sleeps.
type epollWriter struct {
	loops   []*epollLoop
	running sync.WaitGroup
	tail    *entry
	all     []*writerClient
}

func newEpollWriter(loops int, blocks bool) (*epollWriter, error) {
	w := &epollWriter{tail: &entry{}}
	for range loops {
		epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("epoll_create1", err)
		}
		eventfd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if errno != 0 {
			return nil, os.NewSyscallError("eventfd2", errno)
		}
		l := &epollLoop{epfd: epfd, eventfd: int(eventfd)}
		if !blocks {
			if err := l.park(); err != nil {
				return nil, err
			}
		}
		l.tail.Store(w.tail)
		if err := l.control(syscall.EPOLL_CTL_ADD, l.eventfd, syscall.EPOLLIN, -1); err != nil {
			return nil, err
		}
		w.loops = append(w.loops, l)
		w.running.Go(l.run)
	}
	return w, nil
}

func (w *epollWriter) clients() []*writerClient { return w.all }

func (w *epollWriter) accept(l *net.TCPListener) error {
	conn, err := l.AcceptTCP()
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var fd uintptr
	var errno syscall.Errno
	if err := raw.Control(func(theirs uintptr) {
		fd, _, errno = syscall.RawSyscall(syscall.SYS_FCNTL, theirs, syscall.F_DUPFD_CLOEXEC, 0) // still non-blocking
	}); err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("fcntl", errno)
	}
	loop := w.loops[len(w.all)%len(w.loops)]
	c := &epollClient{fd: int(fd), at: w.tail}
	w.all = append(w.all, &c.writerClient)
	return loop.add(c)
}

func (w *epollWriter) append(ev framing.Event) error {
	e := &entry{frame: ev.Object.Frame(ev.Type)}
	w.tail.next.Store(e)
	w.tail = e
	for _, l := range w.loops {
		l.tail.Store(e)
		l.wake()
	}
	return nil
}

func (w *epollWriter) stop() {
	for _, l := range w.loops {
		l.stopped.Store(true)
		l.wake()
	}
	w.running.Wait()
	for _, l := range w.loops {
		for _, c := range l.clients {
			syscall.Close(c.fd)
		}
		syscall.Close(l.eventfd)
		if l.file != nil {
			l.file.Close()
		} else {
			syscall.Close(l.epfd)
		}
	}
}

type epollLoop struct {
	epfd, eventfd int
	tail          atomic.Pointer[entry]
	file          *os.File        // the epoll, for Go's poller; nil if the loop blocks in epoll_wait
	parked        syscall.RawConn // its; nil with it
	asleep        atomic.Bool     // the eventfd must be written to
	stopped       atomic.Bool

	mu      sync.Mutex // held in a round; guards the rest
	clients []*epollClient
	served  *entry // what all clients have that do not wait for their sockets
	batch   [][]byte
}

type epollClient struct {
	writerClient
	fd      int
	at      *entry
	blocked bool
	asked   bool     // epoll tells when the socket takes more
	rest    [][]byte // not yet written
	gone    bool
}

const clientEvents = syscall.EPOLLRDHUP | 1<<31 // EPOLLET, whose constant is negative

func (l *epollLoop) control(op, fd int, events uint32, client int) error {
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(l.epfd, op, fd, &syscall.EpollEvent{Events: events, Fd: int32(client)}))
}

func (l *epollLoop) add(c *epollClient) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = append(l.clients, c)
	return l.control(syscall.EPOLL_CTL_ADD, c.fd, clientEvents, len(l.clients)-1)
}

func (l *epollLoop) wake() {
	if l.asleep.CompareAndSwap(true, false) {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		_, _ = syscall.Write(l.eventfd, one) // fails only when it is full, which wakes as well
	}
}

// run serves the clients until the loop is stopped.
func (l *epollLoop) run() {
	var ready [256]syscall.EpollEvent
	for !l.stopped.Load() {
		l.asleep.Store(true) // before tail is loaded: who appends after that sees it
		timeout := -1
		if l.tail.Load() != l.served || l.stopped.Load() {
			l.asleep.Store(false)
			timeout = 0
		}
		n, err := l.wait(ready[:], timeout)
		if err != nil && err != syscall.EINTR {
			panic(os.NewSyscallError("epoll_wait", err))
		}
		l.round(ready[:max(n, 0)])
	}
}

// park has Go's poller wait for the epoll.
func (l *epollLoop) park() (err error) {
	if err := syscall.SetNonblock(l.epfd, true); err != nil {
		return err
	}
	l.file = os.NewFile(uintptr(l.epfd), "epoll")
	l.parked, err = l.file.SyscallConn()
	return err
}

// wait is epoll_wait; a timeout is 0 or none.
func (l *epollLoop) wait(ready []syscall.EpollEvent, timeout int) (n int, err error) {
	if timeout == 0 || l.parked == nil {
		return syscall.EpollWait(l.epfd, ready, timeout)
	}
	perr := l.parked.Read(func(uintptr) bool {
		n, err = syscall.EpollWait(l.epfd, ready, 0)
		return n != 0 || err != nil
	})
	return n, cmp.Or(perr, err)
}

// round writes to whose sockets take more, and if the list has grown, to all.
func (l *epollLoop) round(ready []syscall.EpollEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range ready {
		if e.Fd < 0 {
			var count [8]byte
			_, _ = syscall.Read(l.eventfd, count[:])
			continue
		}
		c := l.clients[e.Fd]
		c.gone = c.gone || e.Events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0
		if e.Events&syscall.EPOLLOUT != 0 {
			c.blocked = false
			l.serve(int(e.Fd), c)
		}
	}
	if tail := l.tail.Load(); tail != l.served {
		for i, c := range l.clients {
			l.serve(i, c)
		}
		l.served = tail
	}
}

// serve writes to a client what there is.
func (l *epollLoop) serve(i int, c *epollClient) {
	for !c.blocked && !c.gone {
		if len(c.rest) == 0 {
			l.batch, c.at = c.at.take(l.batch[:0])
			c.rest = l.batch
		}
		n := len(c.rest)
		if n == 0 {
			return
		}
		rest, err := writev(c.fd, c.rest)
		c.wrote(n - len(rest))
		c.rest, c.gone = nil, err != nil
		if len(rest) == 0 {
			continue
		}
		c.blocked, c.rest = true, append(c.rest, rest...)
		if !c.asked {
			c.asked = true
			if err := l.control(syscall.EPOLL_CTL_MOD, c.fd, clientEvents|syscall.EPOLLOUT, i); err != nil {
				panic(err)
			}
		}
	}
}
