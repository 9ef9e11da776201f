package passthrough

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// responseBody is the body of an ordinary response while it is sent to the client.
type responseBody struct {
	io.ReadCloser
	metrics *Metrics
	end     func() // called by Close
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, context.Canceled) {
		b.metrics.broken.Inc()
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.metrics.inFlight.Dec()
	defer b.end()
	return b.ReadCloser.Close()
}

// lastingBody is the body of a response that may last. When the proxy is stopping, a watch ends
// properly if only whole events have been read. A watch that is recalled ends where its client resumes.
// Any other response is broken off: the answer of a proxied pod is JSON too, and is not whole because a
// line of it is.
type lastingBody struct {
	io.ReadCloser
	metrics *Metrics
	streams context.Context // ends when the proxy is stopping

	mu       sync.Mutex
	events   boundary
	recalled bool
}

func newLastingBody(resp *http.Response, watch *Watch, m *Metrics, streams context.Context) *lastingBody {
	b := &lastingBody{ReadCloser: resp.Body, metrics: m, streams: streams}
	if watch != nil && resp.StatusCode == http.StatusOK {
		b.events = newBoundary(resp.Header, watch.ordered)
	}
	return b
}

func (b *lastingBody) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if followed, ok := b.ReadCloser.(*followedBody); ok && err != nil {
		followed.over()
	}
	return n, err
}

func (b *lastingBody) read(p []byte) (int, error) {
	b.mu.Lock()
	ended := b.endedLocked()
	b.mu.Unlock()
	if ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endedLocked() { // recalled meanwhile: the client resumes before these bytes
		return 0, io.EOF
	}
	if resumes := b.events.read(p[:n]); b.recalled && resumes > 0 {
		return resumes, io.EOF
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	if !errors.Is(err, context.Canceled) {
		b.metrics.broken.Inc()
	}
	if b.events.whole() && b.streams.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// endedLocked reports whether the watch has been recalled, and its client resumes without a loss.
func (b *lastingBody) endedLocked() bool { return b.recalled && b.events.resumes() }

const (
	// recallAfter is the least time that a watch lasts, or goes on once it is recalled. Clients take a watch
	// that ends sooner, without an event, for one that upstream has refused: fabric8's list again.
	recallAfter = 3 * time.Second
	// recallSpread is the time over which the watches of a lane, or of a connection, end after that.
	// They do not all come back at once.
	recallSpread = 10 * time.Second
)

// onRecall calls end once a watch has been recalled, and has then gone on for as long as after says. It does
// not any more when ctx ends, or forget has returned.
func onRecall(ctx context.Context, recall <-chan struct{}, after func() time.Duration, end func()) (forget func()) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-recall:
			if exchange.Sleep(ctx, after()) {
				end()
			}
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

// spreadRecall returns how long a recalled watch goes on, so that its client takes it for a good one, and
// not all clients come back at once.
func spreadRecall() time.Duration { return recallAfter + rand.N(recallSpread) }

// end makes the body end where it is, if its client resumes without a loss, and otherwise where it
// next does. cancel ends a Read that is under way.
func (b *lastingBody) end(cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recalled = true
	if b.endedLocked() {
		cancel()
	}
}

// followedBody is the body of a response that something follows beside the client. It ends before the client is told
// of the end, and comes back.
type followedBody struct {
	io.ReadCloser
	follower exchange.Follower
	whole    bool
	ended    bool
}

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.follower.Write(p[:n])
	}
	if err != nil {
		b.whole = err == io.EOF
		b.over()
	}
	return n, err
}

// over ends what follows. Nothing is read behind it.
func (b *followedBody) over() {
	if !b.ended {
		b.ended = true
		b.follower.End(b.whole)
	}
}

func (b *followedBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
