package watchers

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Register is the register of the watches that are served from caches. It takes 88 bytes for each,
// beside its subscription. It may be used from any goroutine.
type Register struct {
	mu   sync.Mutex
	last uint64     // ID
	open []*Watcher // in no order
}

// Watcher is one watch as the pages and the log show it. Everything but the ID and the index is
// immutable. Watches share equal strings.
type Watcher struct {
	Sub       fanout.Subscription // begun by the caller
	ID        uint64              // set by Register.Add; no other watch has it in the proxy's lifetime
	Lane      *lane.Lane
	Conn      exchange.Conn
	User      unique.Handle[string]
	UserAgent unique.Handle[string]
	Scope     unique.Handle[Scope]
	Started   fanout.MonotonicTime
	changes   uint64 // of the lane before the watch began
	index     int32  // in Register.open; guarded by its mutex
	TLS, Gzip bool
	Protocol  Protocol
	Slot      uint8 // of the client; see observe.SlotOf
}

// Protocol is how a watch reaches its client.
type Protocol uint8

const (
	overHTTP1 Protocol = iota
	OverHTTP2
	OverWebSocket
)

var protocols = [...]string{"HTTP/1.1", "HTTP/2", "WebSocket"}

func (p Protocol) String() string { return protocols[p] }

// Scope is the part of a resource that a watch asks for, as the client wrote it, and the view in
// which it asks.
type Scope struct {
	Namespace, Name, Labels, Fields, Shard, View string
	Ruled                                        bool // a rule of the configuration names the view
	Seed                                         bool // it fills a sibling replica
}

// filters reports whether the watch wants a part of the objects only.
func (s Scope) filters() bool { return s != Scope{View: s.View, Ruled: s.Ruled, Seed: s.Seed} }

// Describe sets w to the watch that the request of x begins on lane l, except for Sub, Gzip and Slot. user is its
// user's shown name.
func (w *Watcher) Describe(x *exchange.Exchange, l *lane.Lane, user string, scope Scope, webSocket bool) {
	w.Lane, w.Conn, w.TLS = l, x.Conn, x.Conn.Secure()
	if _, ok := x.Conn.(exchange.StreamConn); ok {
		w.Protocol = OverHTTP2
	} else if webSocket {
		w.Protocol = OverWebSocket
	}
	w.User = unique.Make(request.Shown(user))
	w.UserAgent = unique.Make(request.Shown(x.Header.Get("User-Agent")))
	w.Scope = unique.Make(Scope{
		request.Shown(scope.Namespace), request.Shown(scope.Name), request.Shown(scope.Labels), request.Shown(scope.Fields),
		request.Shown(scope.Shard), scope.View, scope.Ruled, scope.Seed})
	w.Started, w.changes = fanout.MonotonicNow(), l.Changes()
}

func (ws *Register) Add(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last++
	w.ID, w.index = ws.last, int32(len(ws.open))
	ws.open = append(ws.open, w)
}

func (ws *Register) Remove(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	end := len(ws.open) - 1
	moved := ws.open[end]
	ws.open[w.index], moved.index = moved, w.index
	ws.open[end] = nil
	ws.open = ws.open[:end]
}

// Forms returns how many watches there are over each protocol, by name, and how many of them are
// compressed.
func (ws *Register) Forms() (byProtocol map[string]int, gzip int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var counts [len(protocols)]int
	for _, w := range ws.open {
		counts[w.Protocol]++
		if w.Gzip {
			gzip++
		}
	}
	byProtocol = make(map[string]int, len(counts))
	for p, n := range counts {
		byProtocol[protocols[p]] = n
	}
	return byProtocol, gzip
}

// Count returns the number of watches.
func (ws *Register) Count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// All returns all watches.
func (ws *Register) All() []*Watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Clone(ws.open)
}

// Evidence gathers what a verdict is based on. It asks the kernel, which takes 2 µs. l is the watch's
// lane from before st. So st covers each change that l knows, and a watch that wants every change is
// never behind l's last one for having been looked at earlier.
func (w *Watcher) Evidence(st fanout.State, l lane.Health) *Evidence {
	e := &Evidence{
		Now:      st.At,
		State:    st,
		tls:      w.TLS,
		Lane:     l,
		filtered: w.Scope.Value().filters(),
		changes:  max(l.Changes, w.changes) - w.changes,
		started:  w.Started.Time(),
	}
	if e.Now.IsZero() { // the shard has not answered, or the watch is evicted now
		e.Now = time.Now()
	}
	if stream, ok := w.Conn.(exchange.StreamConn); ok {
		e.window = stream.Window()
	}
	if t, err := downstream.ReadTCPInfo(w.Conn.TCP()); err == nil { // or the connection has just been closed
		e.TCP = t
	}
	return e
}

var evictionsTotal = exposition.Describe("counter", "watchfan_evictions_total",
	"Watches evicted for exceeding their buffer, by reason.")

// Metrics are the metrics of evicted watches.
type Metrics struct{ evictions map[Cause]*metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{evictions: make(map[Cause]*metrics.Counter)}
	for _, c := range evicting {
		m.evictions[c] = set.NewCounter(evictionsTotal + `{reason="` + string(c) + `"}`)
	}
	return m
}

// LogEvicted logs and counts the eviction, with its verdict. It does not log the user's name.
func (w *Watcher) LogEvicted(e *Evidence, m *Metrics, log *slog.Logger) {
	v := e.Verdict(e.evictedFor())
	m.evictions[v.Reason].Inc()
	t := cmp.Or(e.TCP, &downstream.TCPInfo{})
	log.Info("Evicted watch", "id", w.ID, "resource", w.Lane.Resource(),
		"client", w.Conn.RemoteAddr().String(), "userAgent", w.UserAgent.Value(),
		"reason", v.Reason, "message", v.Message,
		"lagEvents", e.State.LagEvents, "lagBytes", e.State.LagBytes, "lag", e.Lag().Round(time.Millisecond),
		"parks", e.State.Parks,
		"queuedBytes", t.QueuedBytes, "windowBytes", t.WindowBytes,
		"unackedSegments", t.UnackedSegments, "resentSegments", t.ResentSegments, "rtt", t.RTT.Duration())
}
