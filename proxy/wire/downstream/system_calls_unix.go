//go:build unix && !linux

package downstream

import "syscall"

// writev writes as much of bufs as the non-blocking socket fd takes. It returns the rest, which
// shares memory with bufs.
func writev(fd uintptr, bufs [][]byte) (rest [][]byte, err error) {
	for len(bufs) > 0 {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		n, err := syscall.Write(int(fd), bufs[0])
		switch err {
		case nil:
			bufs = advance(bufs, n)
		case syscall.EINTR:
		case syscall.EAGAIN:
			return bufs, nil
		default:
			return bufs, err
		}
	}
	return nil, nil
}

// nothingCame reports whether a read would wait.
func nothingCame(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
