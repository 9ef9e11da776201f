package downstream

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// PatientListener waits while the process or the system is out of file descriptors or memory.
// Without it, a server would stop serving.
type PatientListener struct {
	net.Listener
}

func (l PatientListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil || !passing(err) {
			return c, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// LimitedListener resets connections beyond the limit, and all new connections while memory is
// spent. A quarter of the connections is kept from an address that has all others. A reset costs
// nothing, while an answer would take a TLS handshake and a wait. A connection left in the backlog
// would keep its client from trying another replica. Kubernetes clients try again.
type LimitedListener struct {
	net.Listener
	Most int
	Open func() int             // the number of open connections
	From func(netip.Prefix) int // those of one address

	Spent   func() bool // reports whether memory is spent
	Metrics *Metrics
}

func (l LimitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.admits(c) {
			return c, err
		}
		l.Metrics.rejected.Inc()
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

func (l LimitedListener) admits(c net.Conn) bool {
	open := l.Open()
	if open >= l.Most || l.Spent() {
		return false
	}
	quarter := l.Most / 4
	return open < l.Most-quarter || l.From(account.AddressOf(c.RemoteAddr())) < l.Most-quarter
}

// ClientListener wraps the connections of TCP that it accepts: their arrivals take turns. If TLS is set,
// the connections are ready to carry TLS.
type ClientListener struct {
	net.Listener
	Arrivals *arrivals
	TLS      bool
}

func (l ClientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	if l.TLS {
		return &gatherConn{arrivingConn: arrivingConn{TCPConn: tcp, arrival: Arrival{all: l.Arrivals}}}, nil
	}
	return &arrivingConn{TCPConn: tcp, arrival: Arrival{all: l.Arrivals}}, nil
}

// passing reports whether a later Accept may succeed.
func passing(err error) bool {
	passes := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}
	return slices.ContainsFunc(passes, func(target error) bool { return errors.Is(err, target) })
}
