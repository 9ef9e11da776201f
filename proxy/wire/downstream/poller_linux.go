package downstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Poller waits for the sockets of many clients on one goroutine. A client that is sent nothing, or
// takes nothing, needs no goroutine of its own. The Poller is an epoll instance beside the one of
// Go's runtime, which can only wake goroutines.
type Poller struct {
	file *os.File        // the epoll instance; Go's runtime waits for it
	raw  syscall.RawConn // of file

	mu       sync.Mutex
	sockets  []socket // by file descriptor
	lastTurn int32
}

// socket is the client that is polled at one file descriptor. turn distinguishes it from an earlier
// socket with the same descriptor.
type socket struct {
	turn   int32
	client pollable
}

// pollable is a client of the poller. The poller's goroutine calls it when something may have
// become possible; a call can be spurious. The methods must not wait.
type pollable interface {
	// readable: there are bytes to read, or the client has gone.
	readable()
	// writable: there is room again where there was none, or the client has gone.
	writable()
}

func NewPoller() (*Poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &Poller{file: os.NewFile(uintptr(fd), "epoll")}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

const (
	pollIn  = syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLHUP | syscall.EPOLLERR
	pollOut = syscall.EPOLLOUT | syscall.EPOLLHUP | syscall.EPOLLERR
	edges   = 1 << 31 // EPOLLET, whose constant is negative
)

// add starts calling client about events at conn, beginning with the present state. events is
// pollIn, pollOut or both. The caller must call remove before it closes conn or goes on without the
// poller.
func (p *Poller) add(conn syscall.RawConn, client pollable, events uint32) error {
	return control(conn, func(fd uintptr) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for int(fd) >= len(p.sockets) {
			p.sockets = append(p.sockets, socket{})
		}
		p.lastTurn++
		event := syscall.EpollEvent{Events: events | edges, Fd: int32(fd), Pad: p.lastTurn}
		err := control(p.raw, func(epoll uintptr) error {
			return syscall.EpollCtl(int(epoll), syscall.EPOLL_CTL_ADD, int(fd), &event)
		})
		if err == nil {
			p.sockets[fd] = socket{turn: p.lastTurn, client: client}
		}
		return err
	})
}

// remove stops the calls to client, except for one in progress. It does nothing for a client that
// was not added, or has been removed.
func (p *Poller) remove(conn syscall.RawConn, client pollable) {
	_ = conn.Control(func(fd uintptr) { // fails if conn is closed; then it is not polled
		p.mu.Lock()
		defer p.mu.Unlock()
		if int(fd) < len(p.sockets) && p.sockets[fd].client == client {
			p.sockets[fd] = socket{}
			_ = control(p.raw, func(epoll uintptr) error {
				return syscall.EpollCtl(int(epoll), syscall.EPOLL_CTL_DEL, int(fd), nil)
			})
		}
	})
}

// Run calls clients about their events until ctx ends. After that, add fails.
func (p *Poller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = p.file.Close() })()
	var events [256]syscall.EpollEvent
	for {
		var n int
		var err error
		rerr := p.raw.Read(func(fd uintptr) bool {
			n, err = syscall.EpollWait(int(fd), events[:], 0)
			return n != 0 || err != nil
		})
		if rerr != nil {
			return // closed
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			panic("epoll_wait: " + err.Error()) // only for wrong arguments
		}
		for _, e := range events[:max(n, 0)] {
			client := p.client(e)
			if client == nil {
				continue
			}
			if e.Events&pollOut != 0 {
				client.writable()
			}
			if e.Events&pollIn != 0 {
				client.readable()
			}
		}
	}
}

// client returns the client of an event; nil if it is no longer polled.
func (p *Poller) client(e syscall.EpollEvent) pollable {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sockets[e.Fd]; s.turn == e.Pad {
		return s.client
	}
	return nil
}
