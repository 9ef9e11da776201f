//go:build linux

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
)

// RunFloorServer is `bench floor`: see floor. It ends with its standard input.
func RunFloorServer(_ context.Context, args []string, _, stderr io.Writer) error {
	var ready, cert, key string
	var objects, size, streams int
	fs := flag.NewFlagSet("bench floor", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&ready, "ready", "", "`file` for the address, as JSON")
	fs.IntVar(&objects, "objects", 1, "objects in the list")
	fs.IntVar(&size, "event-size", 0, "size of one watch event in `bytes`")
	fs.IntVar(&streams, "streams", 0, "watches on each HTTP/2 connection; 0 is HTTP/1.1")
	fs.StringVar(&cert, "cert", "", "`file` with a certificate, for TLS")
	fs.StringVar(&key, "key", "", "`file` with its private key")
	if err := fs.Parse(args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	s := &floorServer{chunk: newFloorChunk(size), objects: objects, streams: streams, conns: make(map[int]*floorConn)}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		s.tls = &tls.Config{
			Certificates: []tls.Certificate{pair}, NextProtos: floorProtocols, DynamicRecordSizingDisabled: true,
		}
	}
	addr, err := s.listen()
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]netip.AddrPort{"Address": addr})
	if err == nil {
		err = os.WriteFile(ready, text, 0o600)
	}
	if err != nil {
		return err
	}
	return s.serve()
}

// A floorChunk is one event, ready for the wire except for its number.
type floorChunk struct {
	bytes  []byte
	digits int // offset of the number's ten digits
}

// newFloorChunk returns an event of size bytes, or the smallest possible one.
func newFloorChunk(size int) floorChunk {
	const number = "0123456789"
	event := func(pad int) string {
		return `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1",` +
			`"metadata":{"name":"object","namespace":"bench","annotations":{` + load.SeqMark + number + `"}},` +
			`"data":{"pad":"` + strings.Repeat("x", pad) + `"}}}` + "\n"
	}
	text := event(max(size-len(event(0)), 0))
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
	return floorChunk{[]byte(chunk), strings.Index(chunk, number)}
}

// appendTo appends the event with a number.
func (c floorChunk) appendTo(dst []byte, seq uint64) []byte {
	at := len(dst) + c.digits
	dst = append(dst, c.bytes...)
	for i := 9; i >= 0; i-- {
		dst[at+i] = byte('0' + seq%10)
		seq /= 10
	}
	return dst
}

// A floorServer writes the same events to all its watchers, on one thread.
type floorServer struct {
	chunk    floorChunk
	objects  int
	streams  int         // watches on each HTTP/2 connection
	tls      *tls.Config // nil is plaintext
	orders   int         // file descriptor of the pipe
	epoll    measure.Epoll
	listener int
	conns    map[int]*floorConn // by file descriptor
	batch    []byte             // of the current order
	iovecs   []syscall.Iovec    // its events
	frames   []byte             // its events for all streams of an HTTP/2 connection
}

// A floorConn is one watcher.
type floorConn struct {
	sock    *measure.Sock
	tls     *tls.Conn   // over sealed and sock; nil in plaintext
	sealed  *sealedConn // nil in plaintext
	h2      bool        // it has s.streams watches
	pending []byte      // bytes that the socket did not take
	waiting bool        // epoll watches for room in the socket
}

// maxPending is the most bytes that wait for a watcher that does not read.
const maxPending = 16 << 20

func (s *floorServer) listen() (netip.AddrPort, error) {
	var err error
	if s.epoll, err = measure.NewEpoll(); err != nil {
		return netip.AddrPort{}, err
	}
	const kind = syscall.SOCK_STREAM | syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	if s.listener, err = syscall.Socket(syscall.AF_INET, kind, 0); err != nil {
		return netip.AddrPort{}, err
	}
	if err = syscall.Bind(s.listener, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return netip.AddrPort{}, err
	}
	if err = syscall.Listen(s.listener, 4096); err != nil {
		return netip.AddrPort{}, err
	}
	name, err := syscall.Getsockname(s.listener)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, fd := range []int{s.orders, s.listener} {
		if err := s.epoll.Add(fd, syscall.EPOLLIN); err != nil {
			return netip.AddrPort{}, err
		}
	}
	in := name.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)), nil
}

// serve handles orders, new clients and sockets until the pipe ends.
func (s *floorServer) serve() error {
	var events [64]syscall.EpollEvent
	for {
		ready, err := s.epoll.Wait(events[:], -1)
		if err != nil {
			return err
		}
		for _, e := range ready {
			switch fd := int(e.Fd); fd {
			case s.orders:
				if err := s.order(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			case s.listener:
				s.accept()
			default:
				s.awaken(s.conns[fd], e.Events)
			}
		}
	}
}

// order reads one order and carries it out.
func (s *floorServer) order() error {
	var order [orderSize]byte
	if _, err := io.ReadFull(pipe(s.orders), order[:]); err != nil {
		return err
	}
	first, events := binary.NativeEndian.Uint64(order[:]), binary.NativeEndian.Uint64(order[8:])
	if events > 1<<16 {
		return fmt.Errorf("order of %d events", events)
	}
	s.batch, s.iovecs = s.batch[:0], s.iovecs[:0]
	for i := range events {
		s.batch = s.chunk.appendTo(s.batch, first+i)
	}
	size := len(s.chunk.bytes)
	for i := range int(events) {
		v := syscall.Iovec{Base: &s.batch[i*size]}
		v.SetLen(size)
		s.iovecs = append(s.iovecs, v)
	}
	s.frames = s.appendFrames(s.frames[:0], size)
	for _, c := range s.conns {
		batch := s.batch
		if c.h2 {
			batch = s.frames
		}
		if !c.deliver(batch, s.iovecs) {
			s.drop(c)
		} else if len(c.pending) > 0 && !c.waiting {
			c.waiting = true
			s.epoll.Modify(c.sock.FD, syscall.EPOLLRDHUP|syscall.EPOLLOUT)
		}
	}
	return nil
}

// deliver writes a batch without waiting, and keeps the bytes that the socket does not take. It
// reports whether the watcher stays.
func (c *floorConn) deliver(batch []byte, iovecs []syscall.Iovec) bool {
	switch {
	case c.tls != nil:
		if _, err := c.tls.Write(batch); err != nil {
			return false
		}
		c.pending = append(c.pending, c.sealed.sealed...)
		c.sealed.sealed = c.sealed.sealed[:0]
		return c.flush()
	case len(c.pending) > 0:
		c.pending = append(c.pending, batch...)
		return len(c.pending) <= maxPending
	}
	const most = 1024 // slices that one writev takes (IOV_MAX)
	iovecs = iovecs[:min(len(iovecs), most)]
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, uintptr(c.sock.FD),
		uintptr(unsafe.Pointer(&iovecs[0])), uintptr(len(iovecs)))
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		n = 0
	case errno != 0:
		return false
	}
	c.pending = append(c.pending, batch[n:]...)
	return true
}

// flush writes the pending bytes without waiting. It reports whether the watcher stays.
func (c *floorConn) flush() bool {
	if len(c.pending) == 0 {
		return true
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.sock.FD),
		uintptr(unsafe.Pointer(&c.pending[0])), uintptr(len(c.pending)))
	if errno == 0 {
		c.pending = append(c.pending[:0], c.pending[n:]...)
	}
	return (errno == 0 || errno == syscall.EAGAIN || errno == syscall.EINTR) && len(c.pending) <= maxPending
}

// awaken handles the events of a watcher's socket.
func (s *floorServer) awaken(c *floorConn, events uint32) {
	switch {
	case c == nil:
	case events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 || !c.flush():
		s.drop(c)
	case len(c.pending) == 0:
		c.waiting = false
		s.epoll.Modify(c.sock.FD, syscall.EPOLLRDHUP)
	}
}

func (s *floorServer) drop(c *floorConn) {
	delete(s.conns, c.sock.FD)
	c.sock.Close()
}

// accept takes all waiting clients, each with its request. Every watcher asks at once; another
// client is closed.
func (s *floorServer) accept() {
	for {
		fd, _, err := syscall.Accept4(s.listener, syscall.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		c := &floorConn{sock: &measure.Sock{FD: fd}}
		if watches, err := s.answer(c); err != nil || !watches {
			c.sock.Close()
			continue
		}
		s.conns[fd] = c
	}
}

// answer answers one request: with a list of empty objects, or with the head of a watch. It reports
// whether it is a watch.
func (s *floorServer) answer(c *floorConn) (watches bool, err error) {
	const patience = 5 * time.Second
	if err := c.sock.SetTimeout(patience); err != nil {
		return false, err
	}
	if err := syscall.SetsockoptInt(c.sock.FD, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return false, err
	}
	rw := io.ReadWriter(c.sock)
	if s.tls != nil {
		c.sealed = &sealedConn{Sock: c.sock}
		c.tls = tls.Server(c.sealed, s.tls)
		rw = c.tls
		if err := c.tls.Handshake(); err != nil {
			return false, err
		}
		if c.h2 = c.tls.ConnectionState().NegotiatedProtocol == "h2"; c.h2 {
			if err := s.answerStreams(c.tls); err != nil {
				return false, err
			}
			return true, s.begin(c)
		}
	}
	head := make([]byte, 0, 8<<10)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		n, err := rw.Read(head[len(head):cap(head)])
		if err != nil || n == 0 {
			return false, fmt.Errorf("read request: %w", err)
		}
		head = head[:len(head)+n]
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.Contains(line, []byte("watch=1")) {
		list := `{"metadata":{"resourceVersion":"1"},"items":[{}` + strings.Repeat(",{}", s.objects-1) + `]}`
		_, err = fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(list), list)
		return false, err
	}
	const head200 = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err = io.WriteString(rw, head200); err != nil {
		return false, err
	}
	return true, s.begin(c)
}

// begin makes a watcher whose answer has begun one that is written to without waiting.
func (s *floorServer) begin(c *floorConn) error {
	if c.sealed != nil {
		c.sealed.gathering = true
	}
	if err := c.sock.Nonblocking(); err != nil {
		return err
	}
	return s.epoll.Add(c.sock.FD, syscall.EPOLLRDHUP)
}

// A pipe is a file descriptor that is read without the Go runtime's poller: the poller would wait
// on another thread.
type pipe int

func (fd pipe) Read(p []byte) (int, error) {
	n, err := syscall.Read(int(fd), p)
	switch {
	case err == syscall.EINTR:
		return 0, nil
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return max(n, 0), err
}

// A sealedConn is the connection below TLS. Writes go to the socket, or to a buffer while it
// gathers.
type sealedConn struct {
	*measure.Sock
	gathering bool
	sealed    []byte
}

func (c *sealedConn) Write(p []byte) (int, error) {
	if !c.gathering {
		return c.Sock.Write(p)
	}
	c.sealed = append(c.sealed, p...)
	return len(p), nil
}
