package proxy

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("the port is lost")

// lostPort is a port that accepts nothing any more.
type lostPort struct{ net.Listener }

func (lostPort) Accept() (net.Conn, error) { return nil, errLost }
func (lostPort) Addr() net.Addr            { return &net.TCPAddr{} }
func (lostPort) Close() error              { return nil }

// A server that loses a port ends. It does not first wait for load balancers to see that it is not ready.
func TestPortLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := NewOptions()
		opts.ShutdownDelayDuration = time.Hour
		s, _ := recordedServer(t, opts)
		s.adminLn = lostPort{}
		began := time.Now()
		if err := s.RunDetached(t.Context()); !errors.Is(err, errLost) || time.Since(began) >= opts.ShutdownDelayDuration {
			t.Errorf("it ended with %v after %s", err, time.Since(began))
		}
	})
}
