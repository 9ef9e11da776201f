package fallback

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// lookEvery is the time between two looks whether the others are ready again, and between two
	// groups of connections that are dismissed.
	lookEvery = time.Second
	lookFor   = 5 * time.Second // and no longer for an answer
	// settle is the time between the first ready endpoint and the first connection that is dismissed.
	// kube-proxy writes its rules at most once a second, and needs longer for very many Services.
	settle = 3 * time.Second
	// spread is over how many groups connections are dismissed, so a minute if there are many.
	// leastGroup is the size of a group if there are few.
	spread, leastGroup = 60, 50
	// mostWait is how long a watch waits for its start.
	mostWait = 10 * time.Second
)

var (
	dismissed = exposition.Describe("counter", "watchfan_fallback_dismissed_connections_total",
		"Connections that a fall-back has told to go home, because the others were ready again.")
	delayed = exposition.Describe("gauge", "watchfan_fallback_waiting_watches",
		"Watches that wait for their start, which --fallback-watch-rate delays.")
)

// Connections are those of the clients.
type Connections interface {
	Count() int
	Dismiss(most int) (told int)
}

// Fallback is the part of a watchfan that makes it a fall-back.
type Fallback struct {
	opts  *Options
	conns Connections
	log   *slog.Logger
	// ready says whether the others are ready.
	ready  func(context.Context) (bool, error)
	starts *rate.Limiter
	turns  *fairness.Queue // of the sources whose watches wait for starts
	// upstream is for the slices; they are published once published is set.
	upstream  auth.APIServer
	published atomic.Bool
	takeover  *takeover // nil for a Service

	waiting            *metrics.Gauge
	dismissed, refused *metrics.Counter

	// Run's.
	port    int       // that is published
	serving bool      // there were clients, and the others were not ready
	since   time.Time // the others are ready; zero if they are not, or if that is not known
	group   int       // connections that are dismissed at a time
}

// New returns a Fallback, or nil if the options say that there is none. The caller calls Run.
func New(opts *Options, up auth.APIServer, conns Connections, set *metrics.Set, log *slog.Logger) *Fallback {
	f := &Fallback{opts: opts, conns: conns, log: log, upstream: up,
		starts:    rate.NewLimiter(rate.Limit(opts.FallbackWatchRate), max(1, opts.FallbackWatchRate/10)),
		turns:     fairness.NewPool(2).Queue(fairness.Bounds{Seats: 2, SeatsEach: 1}, fairness.Purpose{}),
		waiting:   set.NewGauge(delayed, nil),
		dismissed: set.NewCounter(dismissed),
		refused:   apistatus.Rejections(set, "fallback_watch_rate"),
	}
	switch {
	case !opts.On():
		return nil
	case opts.Local():
		f.takeover = newTakeover(log)
		f.ready = f.neighbourReady
	default:
		f.ready = f.serviceReady
	}
	return f
}

// Local reports whether f takes the port of another watchfan on this host.
func (f *Fallback) Local() bool { return f != nil && f.takeover != nil }

// Listen returns the listener of the secure port of a fall-back that is Local.
func (f *Fallback) Listen(address string) (net.Listener, error) { return f.takeover.listen(address) }

// OK returns an error as long as clients can't come. It may be called from any goroutine.
func (f *Fallback) OK() error {
	if f != nil && f.takeover == nil && !f.published.Load() {
		return fmt.Errorf("not among the endpoints of %s yet", f.opts.FallbackFor)
	}
	return nil
}

// AwaitStart waits until a watch of a source may start. Sources take turns, so that one that asks for very many
// delays no other. It returns the response to a watch that may not start.
func (f *Fallback) AwaitStart(ctx context.Context, of account.Source) *metav1.Status {
	f.waiting.Inc()
	defer f.waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	end, err := f.turns.Take(ctx, fairness.User(of.Name))
	if err == nil {
		err = f.starts.Wait(ctx)
		end()
	}
	if err != nil {
		f.refused.Inc()
		return apistatus.TooManyRequests("too many watches start while watchfan's caches are away")
	}
	return nil
}

// Run publishes f at a port and sends clients home, until ctx ends. Then it tells clients not to come,
// and those that are there to go.
func (f *Fallback) Run(ctx context.Context, port int) {
	f.port = port
	if f.takeover == nil {
		var slices sync.WaitGroup
		slices.Go(func() { f.keepSlices(ctx) })
		defer slices.Wait()
	}
	for exchange.Sleep(ctx, lookEvery) {
		f.look(ctx)
	}
	f.conns.Dismiss(math.MaxInt)
}

// look looks whether the others are ready, and dismisses a group of connections if they are. Without
// clients it asks nobody.
func (f *Fallback) look(ctx context.Context) {
	n := f.conns.Count()
	if n == 0 && !f.takeover.holds() {
		f.since = time.Time{}
		return
	}
	asking, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	ready, err := f.ready(asking)
	switch {
	case err != nil:
		f.log.Debug("Looked in vain whether the others are ready", "err", err)
		fallthrough
	case !ready:
		if !f.serving && n > 0 {
			f.serving = true
			f.log.Warn("Clients have come, because no watchfan with caches is ready", "fallbackFor", f.opts.FallbackFor)
		}
		f.since = time.Time{}
		return
	case f.since.IsZero():
		f.serving = false
		f.since, f.group = time.Now(), max(leastGroup, (n+spread-1)/spread)
		f.log.Info("Sending clients home, because a watchfan with caches is ready", "connections", n)
	}
	f.takeover.release()
	if time.Since(f.since) >= settle {
		f.dismissed.Add(f.conns.Dismiss(f.group))
	}
}

// neighbour is the client of the watchfan on this host.
var neighbour = &http.Client{CheckRedirect: exchange.NoRedirect}

func (f *Fallback) neighbourReady(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.opts.FallbackFor, nil)
	if err != nil {
		return false, err
	}
	resp, err := neighbour.Do(req)
	if err != nil {
		return false, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK, nil
}

func (f *Fallback) service() (namespace, name string) {
	namespace, name, _ = strings.Cut(f.opts.FallbackFor, "/")
	return namespace, name
}
