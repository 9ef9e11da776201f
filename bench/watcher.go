//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A watcher is one watch connection. It checks what it gets as strictly as a cache would have to: every write of every
// object its filter matches, once, in order, and nothing else.
//
// All of it belongs to whoever holds its reader's mu.
type watcher struct {
	sock   *sock
	src    io.Reader // sock, or the TLS connection over it
	scan   scanner
	filter filter
	last   []uint64 // for each object, the number of the write seen last
}

const connectTimeout = 30 * time.Second

// connect opens a watch of coll at e from resourceVersion rv and returns it when the server has accepted it, with what
// it has sent beyond the head of its answer.
func connect(e endpoint, coll *collection, rv string, f filter) (*watcher, []byte, error) {
	s, err := dial(e.addr, connectTimeout)
	if err != nil {
		return nil, nil, err
	}
	w := &watcher{sock: s, src: s, filter: f}
	early, err := w.request(e, coll.path()+"?watch=1&allowWatchBookmarks=true&resourceVersion="+rv+f.query)
	if err == nil {
		err = s.nonblocking()
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return w, early, nil
}

func (w *watcher) request(e endpoint, uri string) (early []byte, err error) {
	conn := io.ReadWriter(w.sock)
	if e.tls != nil {
		c := tls.Client(w.sock, e.tls)
		if err := c.Handshake(); err != nil {
			return nil, err
		}
		conn, w.src = c, c
	}
	head := "GET " + uri + " HTTP/1.1\r\nHost: " + e.addr.String() + "\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
	if e.token != "" {
		head += "Authorization: Bearer " + e.token + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, err
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		body, _ := br.Peek(min(br.Buffered(), 300))
		return nil, fmt.Errorf("watch answered %s, transfer encoding %v: %.300q", resp.Status, resp.TransferEncoding, body)
	}
	rest, err := br.Peek(br.Buffered())
	return bytes.Clone(rest), err
}

// event takes one event and reports which write it was; seq means nothing for a bookmark.
func (w *watcher) event(line []byte) (seq uint64, bookmark bool, err error) {
	seq, ok, err := seqOf(line)
	if err != nil || !ok {
		return 0, err == nil, err
	}
	n := uint64(len(w.last))
	object := seq % n
	if !w.filter.match(int(object)) {
		return 0, false, fmt.Errorf("event of object %d, which the filter %q excludes", object, w.filter.query)
	}
	if want := w.last[object] + n; seq != want {
		return 0, false, fmt.Errorf("object %d: got write %d after %d, want %d", object, seq, w.last[object], want)
	}
	w.last[object] = seq
	return seq, false, nil
}

// A reader reads many watchers with one goroutine and one epoll.
type reader struct {
	acks *acks
	lose func(error) // called when a watcher is lost; from any goroutine
	epfd int

	// Written by the holder of mu, read by anybody.
	deliveries, early, bookmarks, bytes atomic.Uint64
	latency                             histogram

	// mu is held while a batch of sockets is read, and by those who add and remove watchers.
	mu       sync.Mutex
	watchers map[int]*watcher // by file descriptor
	buf      []byte
	current  *watcher      // whose bytes are being scanned
	now      time.Duration // when they were read
	count    uint64        // events in them
	onEvent  func(line []byte) error
}

// newReader returns a reader without watchers. run must be called, once.
func newReader(a *acks, lose func(error)) (*reader, error) {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	r := &reader{acks: a, lose: lose, epfd: epfd, watchers: make(map[int]*watcher), buf: make([]byte, 256<<10)}
	r.onEvent = r.event
	return r, nil
}

// run reads until stop is set, which it notices within a tenth of a second, and gives up the epoll.
func (r *reader) run(stop *atomic.Bool) {
	defer syscall.Close(r.epfd)
	var ready [256]syscall.EpollEvent
	for !stop.Load() {
		n, err := syscall.EpollWait(r.epfd, ready[:], 100)
		if err != nil && err != syscall.EINTR {
			r.lose(fmt.Errorf("epoll: %w", err))
			return
		}
		r.mu.Lock()
		for _, e := range ready[:max(n, 0)] {
			if w := r.watchers[int(e.Fd)]; w != nil { // nil if removed since epoll reported it
				w.sock.readable()
				r.readLocked(w)
			}
		}
		r.mu.Unlock()
	}
}

// add takes a watcher over, with the bytes it has read already.
func (r *reader) add(w *watcher, early []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := w.sock.fd
	err := syscall.EpollCtl(r.epfd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	r.watchers[fd] = w
	r.scanLocked(w, early)
	r.readLocked(w) // what TLS has decrypted already, epoll does not know of
	return nil
}

// remove closes a watcher, unless it was lost before.
func (r *reader) remove(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers[w.sock.fd] == w {
		delete(r.watchers, w.sock.fd)
		w.sock.Close()
	}
}

// readLocked reads w until there is nothing more.
func (r *reader) readLocked(w *watcher) {
	for r.watchers[w.sock.fd] == w {
		n, err := w.src.Read(r.buf)
		if n > 0 {
			r.scanLocked(w, r.buf[:n])
		}
		if errors.Is(err, errWouldBlock) {
			return
		}
		if err != nil {
			r.loseLocked(w, err)
		}
	}
}

// scanLocked takes the events in p.
func (r *reader) scanLocked(w *watcher, p []byte) {
	if len(p) == 0 {
		return
	}
	r.current, r.now, r.count = w, r.acks.now(), 0
	err := w.scan.feed(p, r.onEvent)
	r.deliveries.Add(r.count)
	r.bytes.Add(uint64(len(p)))
	if err != nil {
		r.loseLocked(w, err)
	}
}

func (r *reader) event(line []byte) error {
	seq, bookmark, err := r.current.event(line)
	if err != nil {
		return err
	}
	if bookmark {
		r.bookmarks.Add(1)
		return nil
	}
	r.count++
	late, acked := r.acks.since(seq, r.now)
	if !acked {
		r.early.Add(1)
		late = 0
	}
	r.latency.record(late)
	return nil
}

func (r *reader) loseLocked(w *watcher, err error) {
	if r.watchers[w.sock.fd] != w {
		return
	}
	delete(r.watchers, w.sock.fd)
	w.sock.Close()
	r.lose(err)
}
