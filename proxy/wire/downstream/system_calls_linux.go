package downstream

import (
	"sync"
	"syscall"
	"unsafe"
)

// maxIovecs is the limit of slices of one writev (IOV_MAX).
const maxIovecs = 1024

// allIovecs holds arrays for writev. One call uses an array at a time.
var allIovecs = sync.Pool{New: func() any { return new([maxIovecs]syscall.Iovec) }}

// writev writes as much of bufs as the non-blocking socket fd takes. It returns the rest, which
// shares memory with bufs.
func writev(fd uintptr, bufs [][]byte) (rest [][]byte, err error) {
	iovecs := allIovecs.Get().(*[maxIovecs]syscall.Iovec)
	defer allIovecs.Put(iovecs)
	for len(bufs) > 0 {
		iovecs := iovecs[:0]
		for _, b := range bufs {
			if len(iovecs) == maxIovecs {
				break
			}
			if len(b) > 0 {
				v := syscall.Iovec{Base: &b[0]}
				v.SetLen(len(b))
				iovecs = append(iovecs, v)
			}
		}
		if len(iovecs) == 0 {
			return nil, nil
		}
		// A raw system call, because this one cannot block. Telling the scheduler costs a tenth of
		// an unbatched delivery.
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&iovecs[0])), uintptr(len(iovecs)))
		clear(iovecs) // the pool must hold no client's frames
		switch errno {
		case 0:
			bufs = advance(bufs, int(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			return bufs, nil
		default:
			return bufs, errno
		}
	}
	return nil, nil
}

// nothingCame reports whether a read would wait.
func nothingCame(fd uintptr) bool {
	var p [1]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p)), 1,
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == syscall.EAGAIN
}
