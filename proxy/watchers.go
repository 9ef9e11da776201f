package proxy

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
)

// watchers is the register of the watches that are served from a cache. It adds 88 bytes to each.
// It may be used from any goroutine.
type watchers struct {
	mu   sync.Mutex
	last uint64     // id
	open []*watcher // in no order
}

// watcher is one watch as the pages and the log show it. All but id and index is immutable. A
// string that many watches share is kept once.
type watcher struct {
	id        uint64 // set by watchers.add
	sub       *fanout.Subscription
	lane      *lane
	conn      *net.TCPConn
	user      unique.Handle[string]
	userAgent unique.Handle[string]
	scope     unique.Handle[watchScope]
	started   fanout.Instant
	changes   uint64 // how many the lane had seen at the start
	index     int32  // in watchers.open, whose mutex guards it
	tls, gzip bool
}

// watchScope is the part of a resource that a watch asks for, as the client wrote it.
type watchScope struct{ namespace, name, labels, fields string }

// maxShown bounds, in bytes, what is kept of a client's user agent, of its name and of each
// selector.
const maxShown = 256

// newWatcher returns the watch that the request of ctx begins on lane l. user is its user's shown
// name.
func newWatcher(ctx *fasthttp.RequestCtx, l *lane, sub *fanout.Subscription, user string, scope watchScope, gzip bool) *watcher {
	conn := accepted(ctx.Conn())
	_, secure := conn.(*tls.Conn)
	return &watcher{
		sub:       sub,
		lane:      l,
		conn:      tcpConn(conn),
		user:      unique.Make(shown(user)),
		userAgent: unique.Make(shown(string(ctx.UserAgent()))),
		scope:     unique.Make(watchScope{shown(scope.namespace), shown(scope.name), shown(scope.labels), shown(scope.fields)}),
		started:   fanout.Now(),
		changes:   l.changes(),
		tls:       secure,
		gzip:      gzip,
	}
}

// shown returns s as one line that a terminal may show, of at most maxShown bytes.
func shown(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown-len("…")] + "…"
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 || c == 0x2028 || c == 0x2029 || c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069 {
			return '\ufffd'
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}

func (ws *watchers) add(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last++
	w.id, w.index = ws.last, int32(len(ws.open))
	ws.open = append(ws.open, w)
}

func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	end := len(ws.open) - 1
	moved := ws.open[end]
	ws.open[w.index], moved.index = moved, w.index
	ws.open[end] = nil
	ws.open = ws.open[:end]
}

// count is how many watches there are.
func (ws *watchers) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// selected returns the watches that match, and how many there are in all.
func (ws *watchers) selected(match func(*watcher) bool) (matching []*watcher, all int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.open {
		if match(w) {
			matching = append(matching, w)
		}
	}
	return matching, len(ws.open)
}

// evidence gathers what a verdict is reached on. It asks the kernel, which takes 2 µs.
func (w *watcher) evidence(st fanout.State, unreachable bool) *evidence {
	e := &evidence{
		now:      time.Now(),
		state:    st,
		tls:      w.tls,
		lane:     healthOf(w.lane, unreachable),
		filtered: w.scope.Value() != watchScope{},
		changes:  w.lane.changes() - w.changes,
		started:  w.started.Time(),
	}
	if t, err := readTCPInfo(w.conn); err == nil { // or the connection has just been closed
		e.tcp = t
	}
	return e
}

// logEvicted logs why the watch was evicted, with numbers but without the user's name, and counts
// it.
func (w *watcher) logEvicted(e *evidence, log *slog.Logger) {
	v := e.verdict(e.evictedFor())
	evictions[v.Reason].Inc()
	t := cmp.Or(e.tcp, &TCPInfo{})
	log.Info("Evicted watch", "id", w.id, "resource", w.lane.resource(), "client", w.conn.RemoteAddr().String(), "userAgent", w.userAgent.Value(),
		"reason", v.Reason, "message", v.Message,
		"lagEvents", e.state.LagEvents, "lagBytes", e.state.LagBytes, "lag", e.lag().Round(time.Millisecond), "parks", e.state.Parks,
		"queuedBytes", t.QueuedBytes, "windowBytes", t.WindowBytes, "unackedSegments", t.UnackedSegments, "resentSegments", t.ResentSegments, "rtt", t.RTT.duration())
}
