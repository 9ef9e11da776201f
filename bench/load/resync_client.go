package load

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Syncers are clients that begin watches of pods at the same time, and read initial events up to the
// bookmark that ends them. They measure once.
type Syncers struct {
	clients *Clients
	over    chan struct{} // closed when all have everything: until then nobody leaves

	began      time.Time
	bytes      []atomic.Int64 // that have come to each
	last       atomic.Int64   // when the last have come, in nanoseconds since the begin
	done       atomic.Int64   // clients whose end bookmark has come
	Compressed atomic.Bool    // answers were compressed
}

// A PodSelection is the pods that a client asks for.
type PodSelection struct {
	Query   string // "" or "&fieldSelector=…", and more parameters
	Objects int    // that there are
}

// AllPods returns the selection of all n pods.
func AllPods(n int) func(int) PodSelection {
	return func(int) PodSelection { return PodSelection{Objects: n} }
}

// WithInitialEvents is the query of a watch that begins with initial events of the latest state (KEP-3157).
const WithInitialEvents = "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

const resyncURI = PodsPath + WithInitialEvents

// NewSyncers connects n clients. Client i will ask for the pods of wants(i).
func NewSyncers(ctx context.Context, e Endpoint, n int, gzip bool, wants func(i int) PodSelection) (*Syncers, error) {
	s := &Syncers{over: make(chan struct{}), bytes: make([]atomic.Int64, n)}
	s.clients = Habit{Clients: n, HTTP1: true, Target: func(int, int) string { return "/version" }}.At(e)
	if _, err := s.clients.For(ctx, 0); err != nil {
		s.Close()
		return nil, err
	}
	s.clients.Gzip = gzip
	s.clients.Target = func(i, _ int) string { return resyncURI + wants(i).Query }
	s.clients.Take = func(i int, resp *http.Response) error { return s.take(i, resp, wants(i).Objects) }
	return s, nil
}

// take reads the initial events of client i. Of compressed streams it looks at the first one only, and reads
// the others until Measure ends them.
func (s *Syncers) take(i int, resp *http.Response, objects int) error {
	var body io.Reader = &coming{s, i, resp.Body}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		s.Compressed.Store(true)
		if i > 0 {
			return s.clients.discard(body)
		}
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	if err := readInitialEvents(body, objects); err != nil {
		return fmt.Errorf("client %d: %w", i, err)
	}
	s.done.Add(1)
	select {
	case <-s.over:
	case <-resp.Request.Context().Done(): // another client has failed
	}
	return nil
}

// coming is the body of a client's answer.
type coming struct {
	*Syncers
	client int
	body   io.Reader
}

func (c *coming) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.last.Store(int64(time.Since(c.began)))
	c.bytes[c.client].Add(int64(n))
	return n, err
}

// Measure lets all clients ask at once, waits until every client has all, and checks what they have. It
// returns what the processes used until the last bytes came, and how long that took.
func (s *Syncers) Measure(ctx context.Context, processes []measure.Process) (
	used measure.Usage, wall time.Duration, err error) {
	meter, err := measure.StartMeter(processes)
	if err != nil {
		return used, 0, err
	}
	s.began = time.Now()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.clients.For(asking, 0)
		ended <- err
	}()
	for seen, waiting := int64(0), true; waiting; {
		select {
		case err := <-ended:
			return used, 0, fmt.Errorf("%d of %d clients done after %v: %w", s.done.Load(), len(s.bytes),
				time.Since(s.began).Round(time.Second), err)
		case <-time.After(20 * time.Millisecond):
		}
		waiting = s.waiting()
		if n := s.Bytes(); n > seen {
			seen, wall = n, time.Duration(s.last.Load())
			if used, err = meter.Read(); err != nil {
				return used, 0, err
			}
		}
	}
	close(s.over)
	cancel()
	<-ended
	return used, wall, s.check()
}

// waiting reports whether more must come. Compressed streams are complete when they are silent.
func (s *Syncers) waiting() bool {
	const silence = 6 * time.Second // a server waits less than this for a proof that its data are current
	if s.Compressed.Load() {
		return s.done.Load() == 0 || time.Since(s.began)-time.Duration(s.last.Load()) < silence
	}
	return s.done.Load() < int64(len(s.bytes))
}

// check reports whether compressed streams are about as long as the first one.
func (s *Syncers) check() error {
	for i := range s.bytes {
		if n, first := s.bytes[i].Load(), s.bytes[0].Load(); s.Compressed.Load() && n < first*9/10 {
			return fmt.Errorf("client %d got %d bytes, where the first got %d", i, n, first)
		}
	}
	return nil
}

func (s *Syncers) Bytes() (sum int64) {
	for i := range s.bytes {
		sum += s.bytes[i].Load()
	}
	return sum
}

func (s *Syncers) Close() { s.clients.Close() }
