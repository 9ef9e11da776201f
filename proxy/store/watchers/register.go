package watchers

import (
	"cmp"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Register is the register of the watches that are served from caches. It takes 88 bytes for each,
// beside its subscription. It may be used from any goroutine.
type Register struct {
	mu   sync.Mutex
	last uint64     // id
	open []*Watcher // in no order

	protocols [protocols]int // how many of them there are over each protocol
	gzip      int            // how many of them are compressed
}

// Watcher is one watch as the pages and the log show it. Everything but the id and the index is
// immutable. Watches share equal strings.
type Watcher struct {
	Sub       fanout.Subscription // begun by the caller
	id        uint64              // set by Register.Add
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
}

// ID returns the number of a watch that has been added. No other has it in the proxy's lifetime.
func (w *Watcher) ID() uint64 { return w.id }

// Protocol is how a watch reaches its client.
type Protocol uint8

const (
	overHTTP1 Protocol = iota
	OverHTTP2
	OverWebSocket
	protocols = iota // how many there are
)

func (p Protocol) String() string { return [protocols]string{"HTTP/1.1", "HTTP/2", "WebSocket"}[p] }

// Form says in which form a watch is sent.
type Form struct{ Gzip, WebSocket bool }

// Scope is the part of a resource that a watch asks for, as the client wrote it, and the view in
// which it asks.
type Scope struct{ Namespace, Name, Labels, Fields, Shard, View string }

// filters reports whether the watch wants a part of the objects only.
func (s Scope) filters() bool { return s != Scope{View: s.View} }

// maxShown is the most that is kept of a client's user agent, of its name and of each selector, in
// bytes.
const maxShown = 256

// Describe sets w to the watch that the request of x begins on lane l, except for Sub. user is its
// user's shown name.
func (w *Watcher) Describe(x *exchange.Exchange, l *lane.Lane, user string, scope Scope, form Form) {
	w.Lane, w.Conn, w.TLS, w.Gzip = l, x.Conn, x.Conn.Secure(), form.Gzip
	if _, ok := x.Conn.(exchange.StreamConn); ok {
		w.Protocol = OverHTTP2
	} else if form.WebSocket {
		w.Protocol = OverWebSocket
	}
	w.User = unique.Make(Shown(user))
	w.UserAgent = unique.Make(Shown(x.Header.Get("User-Agent")))
	w.Scope = unique.Make(Scope{
		Shown(scope.Namespace), Shown(scope.Name), Shown(scope.Labels), Shown(scope.Fields), Shown(scope.Shard), scope.View})
	w.Started, w.changes = fanout.MonotonicNow(), l.Changes()
}

// Shown returns s as one line that is safe for a terminal, of at most maxShown bytes.
func Shown(s string) string {
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

func (ws *Register) Add(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last++
	w.id, w.index = ws.last, int32(len(ws.open))
	ws.open = append(ws.open, w)
	ws.countLocked(w, 1)
}

// countLocked adds n to the counts of watches like w.
func (ws *Register) countLocked(w *Watcher, n int) {
	ws.protocols[w.Protocol] += n
	if w.Gzip {
		ws.gzip += n
	}
}

func (ws *Register) Remove(w *Watcher) {
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
func (ws *Register) Forms() (byProtocol map[string]int, gzip int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	byProtocol = make(map[string]int, protocols)
	for p, n := range ws.protocols {
		byProtocol[Protocol(p).String()] = n
	}
	return byProtocol, ws.gzip
}

// Count returns the number of watches.
func (ws *Register) Count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// Selected returns the watches that match, and the number of all watches.
func (ws *Register) Selected(match func(*Watcher) bool) (matching []*Watcher, all int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.open {
		if match(w) {
			matching = append(matching, w)
		}
	}
	return matching, len(ws.open)
}

// Sample is a lane as it was at one moment.
type Sample struct {
	health  lane.Health
	changes uint64
}

// SampleLane describes a lane. unreachable says that kube-apiserver fails its readiness check.
func SampleLane(l *lane.Lane, unreachable bool) Sample {
	return Sample{lane.HealthOf(l, unreachable), l.Changes()}
}

// Evidence gathers what a verdict is based on. It asks the kernel, which takes 2 µs. l is the watch's
// lane from before st. So st covers each change that l knows, and a watch that wants every change is
// never behind l's last one for having been looked at earlier.
func (w *Watcher) Evidence(st fanout.State, l Sample) *Evidence {
	e := &Evidence{
		Now:      st.At,
		State:    st,
		tls:      w.TLS,
		Lane:     l.health,
		filtered: w.Scope.Value().filters(),
		changes:  max(l.changes, w.changes) - w.changes,
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

// LogEvicted logs and counts the eviction, with its verdict. It does not log the user's name.
func (w *Watcher) LogEvicted(e *Evidence, m *Metrics, log *slog.Logger) {
	v := e.Verdict(e.evictedFor())
	m.evictions[v.Reason].Inc()
	t := cmp.Or(e.TCP, &downstream.TCPInfo{})
	log.Info("Evicted watch", "id", w.id, "resource", w.Lane.Resource(),
		"client", w.Conn.RemoteAddr().String(), "userAgent", w.UserAgent.Value(),
		"reason", v.Reason, "message", v.Message,
		"lagEvents", e.State.LagEvents, "lagBytes", e.State.LagBytes, "lag", e.Lag().Round(time.Millisecond),
		"parks", e.State.Parks,
		"queuedBytes", t.QueuedBytes, "windowBytes", t.WindowBytes,
		"unackedSegments", t.UnackedSegments, "resentSegments", t.ResentSegments, "rtt", t.RTT.Duration())
}
