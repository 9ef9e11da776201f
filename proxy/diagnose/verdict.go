package diagnose

import (
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/lane"
)

// Cause is why a watch has what it has and no more: a word for logs, metrics and eyes.
type Cause string

// The causes, worst first. The first six are about a watch that is owed something; the rest have
// been sent all that there is.
const (
	// ClientNotReading: the client's receive window is closed, and its side answers.
	ClientNotReading Cause = "ClientNotReading"
	// NetworkLoss: segments get lost, or nothing answers.
	NetworkLoss Cause = "NetworkLoss"
	// ClientReadsSlowly: the client's receive window opens and closes.
	ClientReadsSlowly Cause = "ClientReadsSlowly"
	// NetworkSlow: the socket is full, and neither of the above holds it up.
	NetworkSlow Cause = "NetworkSlow"
	// WatchfanSlow: the socket takes more, and we have not come to it.
	WatchfanSlow Cause = "WatchfanSlow"
	// InitialEvents: the watch has just begun, or come back, and is being sent the state, or the
	// history.
	InitialEvents Cause = "InitialEvents"
	// UpstreamBroken: the lane has no watch upstream.
	UpstreamBroken Cause = "UpstreamBroken"
	// UpstreamUnreachable: kube-apiserver does not answer, so what it has to say cannot come
	// either.
	UpstreamUnreachable Cause = "UpstreamUnreachable"
	// UpstreamSilent: the lane's watch upstream has brought neither event nor bookmark for too
	// long.
	UpstreamSilent Cause = "UpstreamSilent"
	// FilteredOut: the last changes of the resource were none that the watch selects.
	FilteredOut Cause = "FilteredOut"
	// UpToDate: the watch has been sent the last change there is.
	UpToDate Cause = "UpToDate"
	// Ending: the watch ends.
	Ending Cause = "Ending"
)

// Causes lists all causes, worst first.
var Causes = []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, WatchfanSlow, InitialEvents,
	UpstreamBroken, UpstreamUnreachable, UpstreamSilent, FilteredOut, UpToDate, Ending}

// Verdict says why a watch has what it has and no more.
type Verdict struct {
	Reason  Cause  `json:"reason"`
	Message string `json:"message"` // the numbers that led to it
	Advice  string `json:"advice"`  // what to do
}

const (
	// tolerance is how long a change may wait in a shard, or a shard's answer be waited for.
	// Deliveries take milliseconds.
	tolerance = 200 * time.Millisecond
	// rewatch is how long a lane may be without a watch upstream: one that has come to its timeout
	// is begun anew at once.
	rewatch = time.Second
	// silence is how long upstream may say nothing. kube-apiserver sends bookmarks each minute,
	// give or take a second.
	silence = 90 * time.Second
)

// Evidence is what a verdict is reached on.
type Evidence struct {
	now   time.Time
	state fanout.State
	tcp   *downstream.TCPInfo // nil if unknown
	tls   bool

	lane     lane.Health
	filtered bool   // the watch selects less than the whole resource
	changes  uint64 // upstream's, to the resource, since the watch began
	started  time.Time
}

// lag is how long the watch has been owed something: the age of the oldest change that its socket
// has not been given or, while it is parked, at least the time since then.
func (e *Evidence) lag() (d time.Duration) {
	if !e.state.Oldest.IsZero() {
		d = e.now.Sub(e.state.Oldest)
	}
	if !e.state.ParkedSince.IsZero() {
		d = max(d, e.now.Sub(e.state.ParkedSince))
	}
	return max(d, 0)
}

// queued is how many bytes the client's side has not acknowledged.
func (e *Evidence) queued() uint32 {
	if e.tcp == nil {
		return 0
	}
	return e.tcp.QueuedBytes
}

func (e *Evidence) parked() bool { return !e.state.ParkedSince.IsZero() }

// cause decides. What is nearest to the client comes first: as long as the socket holds something,
// nothing behind it matters.
func (e *Evidence) cause() Cause {
	if c := e.socketCause(); c != "" {
		return c
	}
	l := &e.lane
	switch {
	case e.state.Phase == fanout.Stopping:
		return Ending
	case e.state.Waited > tolerance, e.state.Phase == fanout.Live && e.lag() > tolerance:
		return WatchfanSlow
	case e.state.Phase == fanout.InitialEvents, e.state.Phase == fanout.Replaying:
		return InitialEvents
	case !l.BrokenSince.IsZero() && e.now.Sub(l.BrokenSince) > rewatch:
		return UpstreamBroken
	case l.Unreachable:
		return UpstreamUnreachable
	case !l.NoBookmarks && e.now.Sub(l.Heard) > silence:
		return UpstreamSilent
	case e.filtered && l.LastChange.After(e.started) && l.LastChange.After(e.state.Selected):
		return FilteredOut
	}
	return UpToDate
}

// socketCause returns why the socket does not drain, "" if nothing speaks against that it will.
func (e *Evidence) socketCause() Cause {
	t := e.tcp
	switch {
	case t == nil && e.parked():
		return ClientReadsSlowly // for all that we know
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

// evictedFor returns why the watch has fallen past its bounds, if it has: while its socket takes
// more, it is we who are slow.
func (e *Evidence) evictedFor() Cause {
	if e.parked() {
		return e.socketCause()
	}
	return WatchfanSlow
}

// verdict is what there is to say of c, which e speaks for.
func (e *Evidence) verdict(c Cause) Verdict {
	v := Verdict{Reason: c}
	v.Message, v.Advice = e.explain(c)
	return v
}

// explain says in numbers why it is c, and what to do.
func (e *Evidence) explain(c Cause) (message, advice string) {
	l := &e.lane
	switch c {
	case ClientNotReading:
		return e.owed() + fmt.Sprintf("; the client's side answers, but its receive window is closed (%d bytes) and nothing has been sent for %s, so the client does not read.",
				e.tcp.WindowBytes, short(e.tcp.SinceSent.Duration())),
			"Look at the client: is it stopped, blocked in its event handler, or short of CPU? It is evicted when it falls past --client-buffer-frames or --client-buffer-bytes, and may then resume where it was."
	case ClientReadsSlowly:
		if e.tcp == nil {
			return e.owed() + "; this system does not tell why.", "Look at the client and at the network to it."
		}
		return e.owed() + fmt.Sprintf("; the client's receive window (%d bytes) was what held the connection up for %s of the %s in which there was something to send.",
				e.tcp.WindowBytes, short(e.tcp.WindowLimited.Duration()), short(e.tcp.Busy.Duration())),
			"The client reads, but slower than changes come: give it more CPU, have it do less in its event handler, narrow its selector, or have it watch metadata only or as protobuf."
	case NetworkLoss:
		return e.owed() + fmt.Sprintf("; segments do not get there: %d not acknowledged, %d of %d sent again so far, %d timeouts in a row, last heard of the client's side %s ago, round trip %s.",
				e.tcp.UnackedSegments, e.tcp.ResentSegments, e.tcp.SentSegments, e.tcp.Timeouts, short(e.tcp.SinceAck.Duration()), short(e.tcp.RTT.Duration())),
			"Look at the network to the client's address, and whether its host is still there: links, firewalls, connection tracking, MTU."
	case NetworkSlow:
		return e.owed() + fmt.Sprintf("; the client's window is open (%d bytes) and little is lost (%d of %d segments sent again), so it is the path that takes no more: round trip %s.",
				e.tcp.WindowBytes, e.tcp.ResentSegments, e.tcp.SentSegments, short(e.tcp.RTT.Duration())),
			"The path to the client is narrow or long for what it watches: put watchfan nearer, let the client accept gzip, narrow its selector, or have it watch metadata only."
	case WatchfanSlow:
		if e.state.Phase == fanout.Unknown {
			message = fmt.Sprintf("The watch's shard has not answered for %s", short(e.state.Waited))
		} else {
			message = e.owed() + fmt.Sprintf(", and the socket takes more; its shard took %s to answer", short(e.state.Waited))
		}
		if e.tls {
			message += "; sealing for TLS is part of a shard's work and not measured apart"
		}
		return message + ".", "watchfan is short of CPU, or one of its shards has too much to do: see its CPU limit and throttling, watchfan_delivery_duration_seconds and /debug/pprof/profile; add CPU or replicas."
	case InitialEvents:
		what := "objects that were there when it began"
		if e.state.Phase == fanout.Replaying {
			what = "changes since the resourceVersion that it came back with"
		}
		return fmt.Sprintf("The watch began %s ago and is being sent the %s: %d events, %d bytes so far.", short(e.now.Sub(e.started)), what, e.state.Events, e.state.Bytes),
			"Nothing, if the events go up; look again in a second."
	case UpstreamBroken:
		return fmt.Sprintf("All that there is has been sent, but %s has had no watch upstream for %s: it is being begun anew, or the collection listed.", l.Resource, short(e.now.Sub(l.BrokenSince))),
			"Look at kube-apiserver and at watchfan's log, \"Upstream watch broke\": it says why, and when it is tried again. The watch goes on by itself when upstream does."
	case UpstreamUnreachable:
		return fmt.Sprintf("All that there is has been sent, but kube-apiserver does not say that it is ready; %s was last heard of %s.", l.Resource, before(e.now, l.Heard)),
			"Look at kube-apiserver and at the network to it; watchfan's /readyz and its log, \"Upstream is not reachable\", say more. The watch goes on by itself when upstream does."
	case UpstreamSilent:
		return fmt.Sprintf("All that there is has been sent, but the upstream watch of %s has brought neither event nor bookmark for %s, where kube-apiserver sends a bookmark each minute.", l.Resource, short(e.now.Sub(l.Heard))),
			"Look at kube-apiserver and what is between it and watchfan: the connection may hang."
	case FilteredOut:
		return fmt.Sprintf("All that it selects has been sent; %s changed %s ago, and %d times since the watch began, but the last change that its namespace and selectors select: %s.", l.Resource,
				short(e.now.Sub(l.LastChange)), e.changes, before(e.now, e.state.Selected)),
			"Nothing, if the selectors are what the client means. If it waits for an object, compare that with the watch's namespace and selectors: kubectl get with the same ones."
	case UpToDate:
		return fmt.Sprintf("All that there is has been sent; %s last changed: %s; upstream was last heard of: %s.", l.Resource, before(e.now, l.LastChange), before(e.now, l.Heard)),
			"Nothing: there is nothing to send."
	}
	return "The watch is ending, and the client has up to 5 s to take its last bytes.", "Nothing: it is over in a moment."
}

// owed says how far the watch is behind.
func (e *Evidence) owed() string {
	s := fmt.Sprintf("%d events of %d bytes wait for the socket", e.state.LagEvents, e.state.LagBytes)
	if e.parked() {
		s += ", which has been full for " + short(e.now.Sub(e.state.ParkedSince))
	} else if e.state.LagEvents > 0 {
		s += ", the oldest for " + short(e.lag())
	}
	if n := e.queued(); n > 0 {
		s += fmt.Sprintf("; %d bytes in it are not acknowledged", n)
	}
	return s
}

// short writes a duration in three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func before(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return short(now.Sub(then)) + " ago"
}
