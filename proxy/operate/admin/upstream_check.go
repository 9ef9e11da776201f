package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	upstreamCheckInterval = 5 * time.Second
	upstreamCheckTimeout  = 4 * time.Second
)

// UpstreamCheck asks kube-apiserver every few seconds whether it is ready.
type UpstreamCheck struct {
	upstream *upstream.Upstream
	log      *slog.Logger

	mu  sync.Mutex
	err error // of the last answer
}

// NewUpstreamCheck returns a check that fails until Run has asked once.
func NewUpstreamCheck(u *upstream.Upstream, log *slog.Logger) *UpstreamCheck {
	return &UpstreamCheck{upstream: u, log: log, err: errors.New("not asked yet")}
}

// OK returns nil if kube-apiserver was ready when it was last asked. It may be called from any
// goroutine, and does not wait for an answer.
func (c *UpstreamCheck) OK() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Run asks until ctx ends, and logs when the answer changes.
func (c *UpstreamCheck) Run(ctx context.Context) {
	for first := true; ; first = false {
		err := c.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		changed := first || (err == nil) != (c.err == nil) ||
			errors.Is(err, upstream.ErrLoop) && !errors.Is(c.err, upstream.ErrLoop)
		c.err = err
		c.mu.Unlock()
		switch {
		case changed && err != nil:
			c.log.Warn("Upstream is not reachable", "address", c.upstream.Address(), "err", err)
		case changed:
			c.log.Info("Upstream is reachable", "address", c.upstream.Address())
		}
		if !exchange.Sleep(ctx, upstreamCheckInterval) {
			return
		}
	}
}

// ask returns nil if kube-apiserver is ready. An answer of 401 or 403 counts as ready: kube-apiserver
// serves, and only does not let the proxy see /readyz.
func (c *UpstreamCheck) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upstreamCheckTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.upstream.URL("/readyz", "").String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.upstream.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("kube-apiserver has not answered within %s", upstreamCheckTimeout)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4096)
	if resp.StatusCode == http.StatusLoopDetected {
		return upstream.ErrLoop
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("kube-apiserver is not ready: %s", resp.Status)
	}
	return nil
}
