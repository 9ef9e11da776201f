//go:build linux

package measure

import (
	"os"
	"syscall"
)

// An Epoll is an epoll(7) instance, level-triggered.
type Epoll int

// NewEpoll returns an Epoll that watches nothing. Close must be called.
func NewEpoll() (Epoll, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return Epoll(fd), os.NewSyscallError("epoll_create1", err)
}

// Add watches a file descriptor for events. Closing the descriptor ends that.
func (e Epoll) Add(fd int, events uint32) error { return e.control(syscall.EPOLL_CTL_ADD, fd, events) }

// Modify changes the events that a file descriptor is watched for.
func (e Epoll) Modify(fd int, events uint32) error {
	return e.control(syscall.EPOLL_CTL_MOD, fd, events)
}

func (e Epoll) control(op, fd int, events uint32) error {
	err := syscall.EpollCtl(int(e), op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// Wait waits for events and returns them in the array given. It returns none after the timeout, in
// milliseconds, or after a signal. A negative timeout means no limit.
func (e Epoll) Wait(events []syscall.EpollEvent, timeout int) ([]syscall.EpollEvent, error) {
	n, err := syscall.EpollWait(int(e), events, timeout)
	if err == syscall.EINTR {
		err = nil
	}
	return events[:max(n, 0)], os.NewSyscallError("epoll_wait", err)
}

func (e Epoll) Close() error { return syscall.Close(int(e)) }
