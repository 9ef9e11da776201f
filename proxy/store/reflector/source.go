package reflector

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Source is the kube-apiserver that reflectors follow, and what they share: turns to list, the
// connection, and the answer to which build of kube-apiserver it is. Its methods may be called from
// any goroutine.
type Source struct {
	upstream auth.APIServer
	full     func() bool // reports whether memory is full
	log      *slog.Logger
	guard    *exchange.Guard

	lists       semaphore.Semaphore // acquired for each list; see turn
	builds      *upstream.Builds
	siblings    *seed.Siblings // nil for none
	reconnected *rate.Limiter  // of reconnect

	filled  map[string]*metrics.Counter // by source
	changes atomic.Uint64               // that upstream has sent to all reflectors
}

// NewSource returns the source that up leads to. siblings may have what it would list; nil for
// none. full reports whether memory is full: then a list that is being read is given up. set gets the
// metrics of all reflectors.
func NewSource(
	up auth.APIServer, siblings *seed.Siblings, full func() bool, set *metrics.Set, guard *exchange.Guard,
) *Source {
	return &Source{
		upstream: up,
		full:     full,
		log:      guard.Log,
		guard:    guard,
		lists:    semaphore.New(ListsAtOnce),
		builds:   upstream.NewBuilds(up, guard),
		siblings: siblings,

		reconnected: rate.NewLimiter(rate.Every(5*time.Second), 1),
		filled: map[string]*metrics.Counter{
			fromUpstream: set.NewCounter(lanesFilled + `{source="upstream"}`),
			fromSibling:  set.NewCounter(lanesFilled + `{source="sibling"}`),
			fromDisk:     set.NewCounter(lanesFilled + `{source="disk"}`),
		},
	}
}

// The sources of a lane's first content.
const (
	fromUpstream = "upstream"
	fromSibling  = "sibling"
	fromDisk     = "disk"
)

// End ends the questions about builds that are under way, and waits for them. It is called once the
// reflectors have ended.
func (s *Source) End() { s.builds.End() }

// restored notes that upstream has gone back in time. What ended lanes have left on disk is wrong then. Those that go
// on notice it themselves.
func (s *Source) restored() {
	if s.siblings != nil {
		s.siblings.Disk.Restored()
	}
}

// Changes returns how many changes upstream has sent to all reflectors.
func (s *Source) Changes() uint64 { return s.changes.Load() }

const (
	// ListsAtOnce is how many collections are listed at a time. Most lists take milliseconds. After
	// an outage of kube-apiserver or of etcd all collections may have to be listed, and without the
	// bound kube-apiserver would have to hold and encode all of them at once.
	ListsAtOnce = 4
	// turnTimeout is how long a turn lasts at most. A list that takes longer goes on, but others no
	// longer wait for it. Otherwise a resource whose conversion webhook does not answer would keep
	// the rest from being listed.
	turnTimeout = 5 * time.Second
)

// turn waits for a turn to list. The turn ends with the first call of done.
func (s *Source) turn(ctx context.Context) (done func(), err error) {
	if err := s.lists.Acquire(ctx); err != nil {
		return nil, err
	}
	end := sync.OnceFunc(s.lists.Release)
	late := time.AfterFunc(turnTimeout, end)
	return func() { late.Stop(); end() }, nil
}

// reconnect makes the next requests use a new connection, which may lead to another kube-apiserver.
// Over HTTP/2 all requests share one connection for as long as it works, even if the kube-apiserver
// behind it does not. Requests under way go on. It does nothing within 5 s of the last time.
func (s *Source) reconnect(ctx context.Context) {
	if !s.reconnected.Allow() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    s.upstream.URL("/readyz", ""),
		Header: make(http.Header),
		Close:  true, // the connection takes no other request after this one
	}).WithContext(ctx)
	resp, err := s.upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req)
	if err != nil {
		s.log.Debug("Left a connection that did not answer", "err", err)
		return
	}
	resp.Body.Close()
}
