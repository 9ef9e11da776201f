package proxy

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/fallback"
)

var errLost = errors.New("the port is lost")

// lostPort is a port that accepts nothing any more.
type lostPort struct{ net.Listener }

func (lostPort) Accept() (net.Conn, error) { return nil, errLost }
func (lostPort) Addr() net.Addr            { return &net.TCPAddr{} }
func (lostPort) Close() error              { return nil }

// A server that loses a port ends, a fall-back too. It does not first wait for load balancers to see that it is not
// ready.
func TestPortLost(t *testing.T) {
	for _, of := range []string{"", "http://127.0.0.1:8002/readyz"} {
		synctest.Test(t, func(t *testing.T) {
			opts := NewOptions()
			opts.ShutdownDelayDuration = time.Hour
			opts.Fallback = fallback.Options{FallbackFor: of, FallbackWatchRate: 200}
			s, _ := recordedServer(t, opts)
			s.adminLn = lostPort{}
			ctx, cancel := context.WithTimeout(t.Context(), opts.ShutdownDelayDuration)
			defer cancel()
			began := time.Now()
			if err := s.RunDetached(ctx); !errors.Is(err, errLost) || time.Since(began) >= opts.ShutdownDelayDuration {
				t.Errorf("the fall-back of %q ended with %v after %s", of, err, time.Since(began))
			}
		})
	}
}
