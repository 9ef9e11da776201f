//go:build unix

package downstream

import (
	"io"
	"os"
	"syscall"
)

// readSocket reads what has come on a socket. If nothing has, it waits, or returns
// [os.ErrDeadlineExceeded].
func readSocket(raw syscall.RawConn, p []byte, wait bool) (n int, err error) {
	rerr := raw.Read(func(fd uintptr) bool {
		for {
			if n, err = sysRead(fd, p); err != syscall.EINTR {
				return !wait || err != syscall.EAGAIN
			}
		}
	})
	switch {
	case rerr != nil:
		return 0, rerr
	case err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// writeSocket writes p to a socket, and waits for room.
func writeSocket(raw syscall.RawConn, p []byte) (n int, err error) {
	werr := raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			var more int
			if more, err = sysWrite(fd, p[n:]); err == syscall.EAGAIN {
				return false
			} else if err != nil && err != syscall.EINTR {
				return true
			}
			n += more
		}
		err = nil
		return true
	})
	if werr != nil {
		err = werr
	}
	return n, err
}
