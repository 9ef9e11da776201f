package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
)

const (
	// mostDials is how many connections a transport opens at a time whose dials are bounded. A dial takes
	// milliseconds, and up to 15 s while kube-apiserver does not answer.
	mostDials = 128
	// mostStrangersDials and mostClientsDials are how many more dials wait for that. Clients' requests share
	// connections of HTTP/2: those that come at once while there is none wait for the first.
	mostStrangersDials, mostClientsDials = 1024, 8 << 10
)

var errDials = errors.New("too many connections are being opened")

// boundDials bounds the dials of a transport, and those that wait. net/http goes on with a dial whose request has
// ended, so clients that come and go would otherwise have any number of them under way. Those beyond the bounds fail.
func boundDials(t *http.Transport, mostWaiting int32) {
	dial, free, waiting := t.DialContext, semaphore.New(mostDials), new(atomic.Int32)
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		defer waiting.Add(-1)
		if waiting.Add(1) > mostWaiting {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errDials}
		}
		if err := free.Acquire(ctx); err != nil {
			return nil, err
		}
		c, err := dial(ctx, network, address)
		if err != nil || t.TLSClientConfig == nil {
			free.Release()
			return c, err
		}
		return &dialled{c, sync.OnceFunc(free.Release)}, nil
	}
}

// dialled is a connection whose dial ends when the other side begins to shake hands, or not at all.
type dialled struct {
	net.Conn
	end func()
}

func (d *dialled) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.end()
	return n, err
}

func (d *dialled) Close() error {
	d.end()
	return d.Conn.Close()
}
