package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// patientListener waits while the process or the system is out of file descriptors or memory.
// fasthttp would stop serving.
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

// limitedListener resets connections beyond the most that clients may have at once, and all
// connections while memory is spent. A reset costs nothing, while an answer would take a TLS
// handshake and the wait for it. A connection in the backlog would keep its client from trying
// another replica. Clients of Kubernetes try again.
type limitedListener struct {
	net.Listener
	most int
	open func() int // how many there are

	spent func() bool // reports whether memory is spent
}

func (l limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.open() < l.most && !l.spent() {
			return c, err
		}
		rejectedConnections.Inc()
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// clientListener wraps the connections that it accepts: their arrivals take turns. With tls, they
// are made to have TLS on top.
type clientListener struct {
	net.Listener
	arrivals *arrivals
	tls      bool
}

func (l clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errors.New("accepted a connection that is not TCP")
	}
	if l.tls {
		return &gatherConn{TCPConn: t, arrival: &arrival{all: l.arrivals}}, nil
	}
	return &arrivingConn{TCPConn: t, arrival: arrival{all: l.arrivals}}, nil
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
