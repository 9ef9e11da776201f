package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// patientListener waits when the process or the system is out of file descriptors or memory, where fasthttp would stop serving.
type patientListener struct {
	net.Listener
}

func (l patientListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil || !passing(err) {
			return c, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// passing reports whether accepting may succeed later.
func passing(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
