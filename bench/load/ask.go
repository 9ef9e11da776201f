package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Habit is what some clients ask again and again. Each has an address and a connection of its own,
// unless they share one. Connections are HTTP/2 if the server speaks it.
type Habit struct {
	Clients   int
	Period    time.Duration // between two requests of a client that Start has started
	UserAgent string        // "" is this program's
	Token     string        // "" is the endpoint's
	Accept    string        // "" is JSON
	Gzip      bool          // accept compressed answers
	Patch     string        // the body of a merge patch, with %d for the time; "" makes requests GETs
	Target    func(client, n int) string

	Shared bool // one connection for all
	Fresh  bool // a new connection for each request
	HTTP1  bool

	Check func(*http.Response) error                  // of each answer 200, before its body is read; nil is none
	Take  func(client int, resp *http.Response) error // takes each body; nil discards it
}

// Clients are the clients of a habit.
type Clients struct {
	Habit
	at      Endpoint
	clients []*http.Client // of each, or one that they share

	Received atomic.Int64          // bytes of the bodies that Take does not take
	Done     atomic.Int64          // whole answers 200
	Refused  atomic.Int64          // answers 429
	Failed   atomic.Int64          // other answers, and errors
	First    atomic.Pointer[error] // of these

	took    measure.Histogram // of whole answers
	running sync.WaitGroup
	cancel  context.CancelFunc
}

// At returns the clients, which connect when they ask.
func (h Habit) At(e Endpoint) *Clients {
	c := &Clients{Habit: h, at: e}
	if h.Shared {
		c.clients = []*http.Client{e.client()}
		return c
	}
	for i := range h.Clients {
		c.clients = append(c.clients, c.alone(i))
	}
	return c
}

// alone returns the client of a connection of its own, which does not decompress.
func (c *Clients) alone(i int) *http.Client {
	client := c.at.client()
	t := client.Transport.(*http.Transport)
	t.DisableCompression, t.DisableKeepAlives = true, c.Fresh
	if c.HTTP1 {
		t.ForceAttemptHTTP2, t.TLSClientConfig = false, c.at.TLS
	}
	from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}
	t.DialContext = (&net.Dialer{LocalAddr: from, Timeout: connectTimeout}).DialContext
	return client
}

func (c *Clients) Close() {
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

// For lets each client ask at least once, one request after the other, and begin none after d. It returns
// how long they took when the last answer has come. The first failure ends it.
func (c *Clients) For(ctx context.Context, d time.Duration) (*measure.Distribution, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var took measure.Histogram
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range c.Clients {
		all.Go(func() {
			for n := 0; ctx.Err() == nil && (n == 0 || time.Now().Before(end)); n++ {
				began := time.Now()
				wait, err := c.ask(ctx, i, n)
				if wait > 0 {
					err = fmt.Errorf("refused for %v", wait)
				}
				if err != nil {
					cancel(err)
					return
				}
				took.Record(time.Since(began))
			}
		})
	}
	all.Wait()
	sum := new(measure.Distribution)
	sum.Add(&took)
	return sum, context.Cause(ctx)
}

// Start makes the clients of a habit begin, spread over their period. A client that is late skips
// requests, and one that is told to retry later waits that long.
func (h Habit) Start(ctx context.Context, e Endpoint) *Clients {
	c := h.At(e)
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range h.Clients {
		c.running.Go(func() {
			if Sleep(ctx, h.Period*time.Duration(i)/time.Duration(h.Clients)) == nil {
				c.work(ctx, i)
			}
		})
	}
	return c
}

func (c *Clients) work(ctx context.Context, i int) {
	tick := time.NewTicker(c.Period)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		wait, err := c.ask(ctx, i, n)
		switch {
		case wait > 0:
			c.Refused.Add(1)
		case err == nil:
			c.Done.Add(1)
			c.took.Record(time.Since(began))
		case ctx.Err() == nil:
			c.Failed.Add(1)
			c.First.CompareAndSwap(nil, &err)
		}
		_ = Sleep(ctx, wait)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Stop ends started clients, and returns the latencies of their whole answers.
func (c *Clients) Stop() *measure.Distribution {
	c.cancel()
	c.running.Wait()
	c.Close()
	took := new(measure.Distribution)
	took.Add(&c.took)
	return took
}

// ask makes request n of a client, and reads the whole answer, which may tell the client to wait.
func (c *Clients) ask(ctx context.Context, client, n int) (wait time.Duration, err error) {
	method, body := http.MethodGet, ""
	if c.Patch != "" {
		method, body = http.MethodPatch, fmt.Sprintf(c.Patch, time.Now().UnixNano())
	}
	resp, err := c.send(ctx, client, method, c.Target(client, n), body)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp)
	}
	if c.Check != nil {
		if err := c.Check(resp); err != nil {
			return 0, err
		}
	}
	if c.Take != nil {
		return 0, c.Take(client, resp)
	}
	return 0, c.discard(resp.Body)
}

func (c *Clients) send(ctx context.Context, client int, method, target, body string) (*http.Response, error) {
	header := http.Header{"User-Agent": {cmp.Or(c.UserAgent, Name)}, "Accept": {cmp.Or(c.Accept, "application/json")}}
	if body != "" {
		header.Set("Content-Type", "application/merge-patch+json")
	}
	if c.Gzip {
		header.Set("Accept-Encoding", "gzip")
	}
	as := c.at
	as.Token = cmp.Or(c.Token, as.Token)
	return as.do(ctx, c.clients[client%len(c.clients)], method, target, body, header)
}

// refused returns how long a client waits after an answer 429. Others are errors.
func refused(resp *http.Response) (wait time.Duration, err error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusTooManyRequests {
		return 0, fmt.Errorf("%s %s: %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status, text)
	}
	return max(retryAfter(resp.Header), time.Second), nil
}

// retryAfter returns the time that a refused client waits: the seconds in Retry-After, as in
// client-go's rest/with_retry.go, and one second without it.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		seconds = 1
	}
	return time.Duration(seconds) * time.Second
}

var copies = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// discard reads a body to its end, in larger pieces than io.Discard does.
func (c *Clients) discard(body io.Reader) error {
	buf := copies.Get().(*[64 << 10]byte)
	defer copies.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buf[:])
	c.Received.Add(n)
	return err
}

// A Versioned object has a resourceVersion.
type Versioned struct {
	Metadata struct {
		ResourceVersion uint64 `json:",string"`
	}
}

// Follow begins a watch on the first client's connection, which ends with ctx. It returns the
// resourceVersions of the events, as a channel that is closed at the end of the watch.
func (c *Clients) Follow(ctx context.Context, path string) (<-chan uint64, error) {
	resp, err := c.send(ctx, 0, http.MethodGet, path+"?watch=1", "")
	if err != nil {
		return nil, err
	}
	versions := make(chan uint64)
	go func() {
		defer close(versions)
		defer resp.Body.Close()
		for events := json.NewDecoder(resp.Body); ; {
			var event struct{ Object Versioned }
			if events.Decode(&event) != nil {
				return
			}
			select {
			case versions <- event.Object.Metadata.ResourceVersion:
			case <-ctx.Done():
				return
			}
		}
	}()
	return versions, nil
}
