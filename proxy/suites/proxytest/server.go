package proxytest

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Server is a scripted kube-apiserver. Its methods may be called from any goroutine.
type Server struct {
	*httptest.Server
	Pipes *Pipes // its listener in a bubble, else nil
	t     testing.TB

	mu            sync.Mutex
	rv, uids      uint64
	collections   map[string]*Collection // by path
	rules         []*rule
	requests      []Request
	streams       map[*Stream]struct{}
	opened        chan struct{} // closed and replaced when a stream opens or a request comes
	pages         map[string][]object
	watchList     bool
	bookmarkAfter time.Duration
	columns       string // of Tables
	delay         func(Kind) time.Duration
	allow         func(token, review string) bool
}

type rule struct {
	kind Kind
	left int
	do   func(*Call)
}

// NewServer starts a server over HTTP/1.1, at resourceVersion 100, that ends with the test.
func NewServer(t testing.TB) *Server {
	return newServer(t, nil, httptest.NewUnstartedServer(nil), (*httptest.Server).Start)
}

// NewTLSServer starts a server over HTTP/2.
func NewTLSServer(t testing.TB) *Server {
	return newServer(t, nil, httptest.NewUnstartedServer(nil), startHTTP2)
}

// NewBubbleServer starts a server over HTTP/1.1 in a bubble of testing/synctest. Only Pipes lead to it.
func NewBubbleServer(t testing.TB) *Server { return newBubbleServer(t, (*httptest.Server).Start) }

// NewBubbleTLSServer is NewBubbleServer over HTTP/2.
func NewBubbleTLSServer(t testing.TB) *Server { return newBubbleServer(t, startHTTP2) }

func newBubbleServer(t testing.TB, start func(*httptest.Server)) *Server {
	pipes := NewPipes()
	return newServer(t, pipes, &httptest.Server{Listener: pipes, Config: new(http.Server)}, start)
}

func startHTTP2(s *httptest.Server) {
	s.EnableHTTP2 = true
	s.StartTLS()
}

func newServer(t testing.TB, pipes *Pipes, server *httptest.Server, start func(*httptest.Server)) *Server {
	s := &Server{
		Server:        server,
		Pipes:         pipes,
		t:             t,
		rv:            100,
		collections:   make(map[string]*Collection),
		streams:       make(map[*Stream]struct{}),
		opened:        make(chan struct{}),
		pages:         make(map[string][]object),
		watchList:     true,
		bookmarkAfter: 50 * time.Millisecond,
		columns:       DefaultColumns,
		allow:         func(_, _ string) bool { return true },
	}
	for _, r := range []Resource{ConfigMaps, Foos, Events} {
		s.Add(r)
	}
	server.Config.Handler = http.HandlerFunc(s.serve)
	start(server)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// Add gives the server another resource, before the first request for it.
func (s *Server) Add(r Resource) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Collection{s: s, Resource: r, objects: make(map[string]object)}
	s.collections[r.Path()] = c
	return c
}

// Collection returns the server's collection of a resource.
func (s *Server) Collection(r Resource) *Collection { return s.collections[r.Path()] }

// SetWatchList says whether the server knows sendInitialEvents.
func (s *Server) SetWatchList(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchList = on
}

// SetBookmarkAfter sets when a watch of a few seconds gets its bookmark. A negative duration means
// never.
func (s *Server) SetBookmarkAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bookmarkAfter = d
}

// SetDelay delays each line of each stream.
func (s *Server) SetDelay(f func(Kind) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = f
}

// SetAllow sets the answer to access reviews. At first everything is allowed.
func (s *Server) SetAllow(f func(token, review string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allow = f
}

// On lets do answer the next times requests of a kind. Rules of one kind are used in order.
func (s *Server) On(kind Kind, times int, do func(*Call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &rule{kind, times, do})
}

// OnClients lets do answer all requests that are passed through.
func (s *Server) OnClients(do http.HandlerFunc) {
	s.On(Client, math.MaxInt, func(c *Call) { do(c.W, c.R) })
}

// Forget drops the rules that are left.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// RV returns the current resourceVersion.
func (s *Server) RV() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// Bump adds n to the resourceVersion, as writes to other resources do, and returns it.
func (s *Server) Bump(n uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv += n
	return s.rv
}

// Requests returns the requests of a kind so far.
func (s *Server) Requests(kind Kind) []Request {
	return slices.DeleteFunc(s.All(), func(r Request) bool { return r.Kind != kind })
}

// Count returns the number of requests of a kind so far.
func (s *Server) Count(kind Kind) int { return len(s.Requests(kind)) }

// WantCount fails the test unless there have been n requests of a kind.
func (s *Server) WantCount(kind Kind, n int) {
	s.t.Helper()
	if got := s.Count(kind); got != n {
		s.t.Errorf("%d requests of kind %s, want %d", got, kind, n)
	}
}

// AwaitCount waits until there have been n requests of a kind.
func (s *Server) AwaitCount(kind Kind, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d requests of kind %s", n, kind), func() bool {
		have := 0
		for _, r := range s.requests {
			if r.Kind == kind {
				have++
			}
		}
		return have >= n
	})
}

// All returns all requests so far.
func (s *Server) All() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Open returns the number of open streams of a kind.
func (s *Server) Open(kind Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for st := range s.streams {
		if st.Kind == kind {
			n++
		}
	}
	return n
}

// Stream waits for the newest open stream of one of the kinds and returns it.
func (s *Server) Stream(kinds ...Kind) *Stream {
	s.t.Helper()
	return s.stream(nil, kinds...)
}

// stream is Stream for one collection, or for any if c is nil.
func (s *Server) stream(c *Collection, kinds ...Kind) *Stream {
	s.t.Helper()
	var newest *Stream
	s.await(fmt.Sprintf("stream %v", kinds), func() bool {
		for st := range s.streams {
			if slices.Contains(kinds, st.Kind) && (c == nil || st.collection == c) &&
				(newest == nil || st.number > newest.number) {
				newest = st
			}
		}
		return newest != nil
	})
	return newest
}

// Streams returns the open streams by which watchfan follows collections, the oldest first.
func (s *Server) Streams() (open []*Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.Kind == WatchList || st.Kind == Watch {
			open = append(open, st)
		}
	}
	slices.SortFunc(open, func(a, b *Stream) int { return cmp.Compare(a.number, b.number) })
	return open
}

// Reflector waits for the stream by which watchfan follows a collection, and returns it.
func (s *Server) Reflector() *Stream {
	s.t.Helper()
	return s.Stream(WatchList, Watch)
}

// Patience is how long tests wait for anything. It only ends what hangs, because a machine that
// tests many packages at once is slow.
const Patience = time.Minute

func (s *Server) await(what string, have func() bool) {
	s.t.Helper()
	deadline := time.After(Patience) //testlint:allow timer it only ends what hangs
	for {
		s.mu.Lock()
		ok, opened := have(), s.opened
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-opened:
		case <-deadline:
			s.t.Fatalf("upstream: no %s within %s", what, Patience)
		}
	}
}

func (s *Server) notifyLocked() {
	close(s.opened)
	s.opened = make(chan struct{})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &Call{Kind: kindOf(r), Query: r.URL.Query(), W: w, R: r, s: s}
	s.mu.Lock()
	s.requests = append(s.requests, Request{c.Kind, r.Method, r.URL.Path, c.Query, bearerToken(r), time.Now()})
	s.notifyLocked()
	var do func(*Call)
	for _, rule := range s.rules {
		if rule.kind == c.Kind && rule.left > 0 {
			rule.left--
			do = rule.do
			break
		}
	}
	s.mu.Unlock()
	if do != nil {
		do(c)
		return
	}
	c.Serve()
}
