package diagnose

import (
	"cmp"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/lane"
)

// Watchers is the register of the watches that are served from caches. It takes 88 bytes for each,
// beside its subscription. It may be used from any goroutine.
type Watchers struct {
	mu   sync.Mutex
	last uint64     // id
	open []*Watcher // in no order

	protocols [protocols]int // how many of them there are over each protocol
	gzip      int            // how many of them are compressed
}

// Watcher is one watch as the pages and the log show it. Everything but id and index is immutable.
// Watches share equal strings.
type Watcher struct {
	Sub       fanout.Subscription // begun by the caller
	id        uint64              // set by Watchers.Add
	Lane      *lane.Lane
	conn      exchange.Conn
	user      unique.Handle[string]
	userAgent unique.Handle[string]
	scope     unique.Handle[WatchScope]
	started   fanout.MonotonicTime
	changes   uint64 // of the lane before the watch began
	index     int32  // in Watchers.open; guarded by its mutex
	tls, gzip bool
	protocol  protocol
}

// protocol is how a watch reaches its client.
type protocol uint8

const (
	overHTTP1 protocol = iota
	overHTTP2
	overWebSocket
	protocols = iota // how many there are
)

func (p protocol) String() string { return [protocols]string{"HTTP/1.1", "HTTP/2", "WebSocket"}[p] }

// WatchForm says in which form a watch is sent.
type WatchForm struct{ Gzip, WebSocket bool }

// WatchScope is the part of a resource that a watch asks for, as the client wrote it, and the view in
// which it asks.
type WatchScope struct{ Namespace, Name, Labels, Fields, Shard, View string }

// filters reports whether the watch wants a part of the objects only.
func (s WatchScope) filters() bool { return s != WatchScope{View: s.View} }

// maxShown is the most that is kept of a client's user agent, of its name and of each selector, in
// bytes.
const maxShown = 256

// Describe sets w to the watch that the request of x begins on lane l, except for Sub. user is its
// user's shown name.
func (w *Watcher) Describe(x *exchange.Exchange, l *lane.Lane, user string, scope WatchScope, form WatchForm) {
	w.Lane, w.conn, w.tls, w.gzip = l, x.Conn, x.Conn.Secure(), form.Gzip
	if _, ok := x.Conn.(exchange.StreamConn); ok {
		w.protocol = overHTTP2
	} else if form.WebSocket {
		w.protocol = overWebSocket
	}
	w.user = unique.Make(shown(user))
	w.userAgent = unique.Make(shown(x.Header.Get("User-Agent")))
	w.scope = unique.Make(WatchScope{
		shown(scope.Namespace), shown(scope.Name), shown(scope.Labels), shown(scope.Fields), shown(scope.Shard), scope.View})
	w.started, w.changes = fanout.MonotonicNow(), l.Changes()
}

// shown returns s as one line that is safe for a terminal, of at most maxShown bytes.
func shown(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown-len("…")] + "…"
	}
	return strings.Map(func(c rune) rune {
		if unsafeForTerminal(c) {
			return '\ufffd'
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// unsafeForTerminal reports whether c is a control character, ends a line, or changes the direction
// of text.
func unsafeForTerminal(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c >= 0x2028 && c <= 0x202e || c >= 0x2066 && c <= 0x2069
}

func (ws *Watchers) Add(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last++
	w.id, w.index = ws.last, int32(len(ws.open))
	ws.open = append(ws.open, w)
	ws.countLocked(w, 1)
}

// countLocked adds n to the counts of watches like w.
func (ws *Watchers) countLocked(w *Watcher, n int) {
	ws.protocols[w.protocol] += n
	if w.gzip {
		ws.gzip += n
	}
}

func (ws *Watchers) Remove(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	end := len(ws.open) - 1
	moved := ws.open[end]
	ws.open[w.index], moved.index = moved, w.index
	ws.open[end] = nil
	ws.open = ws.open[:end]
	ws.countLocked(w, -1)
}

// Forms returns how many watches there are over each protocol, by name, and how many of them are
// compressed.
func (ws *Watchers) Forms() (byProtocol map[string]int, gzip int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	byProtocol = make(map[string]int, protocols)
	for p, n := range ws.protocols {
		byProtocol[protocol(p).String()] = n
	}
	return byProtocol, ws.gzip
}

// Count returns the number of watches.
func (ws *Watchers) Count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// Selected returns the watches that match, and the number of all watches.
func (ws *Watchers) Selected(match func(*Watcher) bool) (matching []*Watcher, all int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.open {
		if match(w) {
			matching = append(matching, w)
		}
	}
	return matching, len(ws.open)
}

// Evidence gathers what the verdict on an eviction is based on. It asks the kernel, which takes 2 µs.
func (w *Watcher) Evidence(st fanout.State) *Evidence {
	return w.evidence(st, sampleLane(w.Lane, false))
}

// laneSample is a lane as it was at one moment.
type laneSample struct {
	health  lane.Health
	changes uint64
}

// sampleLane describes a lane. unreachable says that kube-apiserver fails its readiness check.
func sampleLane(l *lane.Lane, unreachable bool) laneSample {
	return laneSample{lane.HealthOf(l, unreachable), l.Changes()}
}

// evidence gathers what a verdict is based on. l is the watch's lane from before st. So st covers each
// change that l knows, and a watch that wants every change is never behind l's last one for having
// been looked at earlier.
func (w *Watcher) evidence(st fanout.State, l laneSample) *Evidence {
	e := &Evidence{
		now:      st.At,
		state:    st,
		tls:      w.tls,
		lane:     l.health,
		filtered: w.scope.Value().filters(),
		changes:  max(l.changes, w.changes) - w.changes,
		started:  w.started.Time(),
	}
	if e.now.IsZero() { // the shard has not answered, or the watch is evicted now
		e.now = time.Now()
	}
	if stream, ok := w.conn.(exchange.StreamConn); ok {
		e.window = stream.Window()
	}
	if t, err := downstream.ReadTCPInfo(w.conn.TCP()); err == nil { // or the connection has just been closed
		e.tcp = t
	}
	return e
}

// LogEvicted logs and counts the eviction, with its verdict. It does not log the user's name.
func (w *Watcher) LogEvicted(e *Evidence, m *Metrics, log *slog.Logger) {
	v := e.verdict(e.evictedFor())
	m.evictions[v.Reason].Inc()
	t := cmp.Or(e.tcp, &downstream.TCPInfo{})
	log.Info("Evicted watch", "id", w.id, "resource", w.Lane.Resource(),
		"client", w.conn.RemoteAddr().String(), "userAgent", w.userAgent.Value(),
		"reason", v.Reason, "message", v.Message,
		"lagEvents", e.state.LagEvents, "lagBytes", e.state.LagBytes, "lag", e.lag().Round(time.Millisecond),
		"parks", e.state.Parks,
		"queuedBytes", t.QueuedBytes, "windowBytes", t.WindowBytes,
		"unackedSegments", t.UnackedSegments, "resentSegments", t.ResentSegments, "rtt", t.RTT.Duration())
}
