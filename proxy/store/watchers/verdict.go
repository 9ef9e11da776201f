package watchers

import (
	"slices"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Cause is why a watch has been sent what it has been sent, and no more. It is a word for logs,
// metrics and pages.
type Cause string

// The causes, worst first. With the first eight, the watch has yet to be sent something. With the
// others, it has been sent all that watchfan has for it.
const (
	ClientNotReading    Cause = "ClientNotReading"    // the receive window is closed, and the client's side answers
	NetworkLoss         Cause = "NetworkLoss"         // segments get lost, or nothing answers
	ClientReadsSlowly   Cause = "ClientReadsSlowly"   // the client's receive window opens and closes
	NetworkSlow         Cause = "NetworkSlow"         // the socket is full, for none of the reasons above
	StreamWindowClosed  Cause = "StreamWindowClosed"  // the socket has room; the window of the HTTP/2 stream is closed
	SharedWindowClosed  Cause = "SharedWindowClosed"  // the same for the window of the HTTP/2 connection
	WatchfanSlow        Cause = "WatchfanSlow"        // the socket has room, and the shard has not written yet
	InitialEvents       Cause = "InitialEvents"       // it has just begun or resumed: objects or history are sent
	UpstreamBroken      Cause = "UpstreamBroken"      // the lane has no upstream watch
	UpstreamUnreachable Cause = "UpstreamUnreachable" // kube-apiserver does not answer, so it sends no changes
	UpstreamSilent      Cause = "UpstreamSilent"      // the upstream watch has brought nothing for too long
	FilteredOut         Cause = "FilteredOut"         // the watch does not select the last changes
	UpToDate            Cause = "UpToDate"            // the watch has been sent the last change there is
	Ending              Cause = "Ending"              // the watch ends
)

// Causes lists all causes, worst first.
var Causes = slices.Concat(evicting, []Cause{InitialEvents, UpstreamBroken, UpstreamUnreachable, UpstreamSilent,
	FilteredOut, UpToDate, Ending})

// evicting are the causes of evictions.
var evicting = []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, StreamWindowClosed,
	SharedWindowClosed, WatchfanSlow}

// Slow reports whether the cause keeps events from the client that it should have by now.
func (c Cause) Slow() bool {
	switch c {
	case InitialEvents, FilteredOut, UpToDate, Ending:
		return false
	}
	return true
}

// Verdict is a cause with its explanation.
type Verdict struct {
	Reason  Cause  `json:"reason"`
	Message string `json:"message"` // the numbers that led to it
	Advice  string `json:"advice"`  // what to do
}

const (
	// tolerance is how long a change may wait in a shard, and how long a shard may take to answer.
	// Deliveries take milliseconds.
	tolerance = 200 * time.Millisecond
	// rewatch is how long a lane may have no upstream watch. A watch that has reached its timeout
	// is started again at once.
	rewatch = time.Second
	// silence is how long an upstream watch may bring nothing. kube-apiserver sends a bookmark each
	// minute, give or take a second.
	silence = 90 * time.Second
)

// Evidence is what a verdict is based on.
type Evidence struct {
	Now   time.Time
	State fanout.State
	TCP   *downstream.TCPInfo // nil if unknown
	tls   bool

	window exchange.Window // of an HTTP/2 client, that keeps bytes from being sent

	Lane     lane.Health
	filtered bool   // the watch selects less than the whole resource
	changes  uint64 // that upstream has sent of the resource since the watch began
	started  time.Time
}

// Lag is the age of the oldest change that has not been written to the socket. While the watch is
// parked, it is at least the time since it was parked.
func (e *Evidence) Lag() (d time.Duration) {
	if !e.State.Oldest.IsZero() {
		d = e.Now.Sub(e.State.Oldest)
	}
	if !e.State.ParkedSince.IsZero() {
		d = max(d, e.Now.Sub(e.State.ParkedSince))
	}
	return max(d, 0)
}

// Queued is how many bytes in the socket the client's side has not acknowledged.
func (e *Evidence) Queued() uint32 {
	if e.TCP == nil {
		return 0
	}
	return e.TCP.QueuedBytes
}

func (e *Evidence) parked() bool { return !e.State.ParkedSince.IsZero() }

// Cause decides. The cause nearest to the client comes first: while the socket does not drain,
// nothing behind it matters.
func (e *Evidence) Cause() Cause {
	if c := e.socketCause(); c != "" {
		return c
	}
	l := &e.Lane
	switch {
	case e.State.Phase == fanout.Stopping:
		return Ending
	case e.State.Waited > tolerance, e.State.Phase == fanout.Live && e.Lag() > tolerance:
		return WatchfanSlow
	case e.State.Phase == fanout.InitialEvents, e.State.Phase == fanout.Replaying:
		return InitialEvents
	case !l.BrokenSince.IsZero() && e.Now.Sub(l.BrokenSince) > rewatch:
		return UpstreamBroken
	case l.Unreachable:
		return UpstreamUnreachable
	case !l.NoBookmarks && e.Now.Sub(l.LastHeard) > silence:
		return UpstreamSilent
	case e.filtered && l.LastChange.After(e.started) && l.LastChange.After(e.State.Selected):
		return FilteredOut
	}
	return UpToDate
}

// socketCause returns why the socket does not drain, or "" if nothing shows that it does not.
func (e *Evidence) socketCause() Cause {
	t := e.TCP
	switch {
	case e.parked() && e.window == exchange.StreamWindow:
		return StreamWindowClosed
	case e.parked() && e.window == exchange.ConnectionWindow:
		return SharedWindowClosed
	case t == nil && e.parked():
		return ClientReadsSlowly // the socket is full; nothing more is known
	case t == nil:
		return ""
	case t.Unanswered(), t.Recovering && !t.Closed():
		return NetworkLoss
	case t.Closed() && t.Resting():
		return ClientNotReading
	case !e.parked():
		return ""
	case t.Closed(), t.WindowLimited > t.Busy/2:
		return ClientReadsSlowly
	case t.ResentSegments > t.SentSegments/50:
		return NetworkLoss
	}
	return NetworkSlow
}

// evictedFor returns why the watch was evicted, if it was. As long as the socket has room, watchfan
// is slow.
func (e *Evidence) evictedFor() Cause {
	if e.parked() {
		return e.socketCause()
	}
	return WatchfanSlow
}

// Verdict returns c with its explanation.
func (e *Evidence) Verdict(c Cause) Verdict {
	x := explanations[c]
	if c == ClientReadsSlowly && e.TCP == nil {
		x = unexplained
	}
	return Verdict{Reason: c, Message: x.message(e), Advice: x.advice}
}
