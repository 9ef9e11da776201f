package watchers

import (
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// explanation says why a verdict has its cause, and what to do.
type explanation struct {
	meaning string                 // in a few words, for top --help
	message func(*Evidence) string // holds the numbers that led to the cause
	advice  string
}

const evicts = " watchfan evicts the watch when it is more than --client-buffer-frames or --client-buffer-bytes " +
	"behind. The client can then resume from its last resourceVersion."

// explanations holds the explanation of each cause. The messages of the first four need e.TCP.
var explanations = map[Cause]explanation{
	ClientNotReading: {
		"the client does not read: its receive window is closed",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. The client's side answers, but its receive window is closed (%d bytes), and "+
				"nothing was sent for %s. So the client does not read.",
				e.backlog(), e.TCP.WindowBytes, Short(e.TCP.SinceSent.Duration()))
		},
		"Check the client: is it stopped, is its event handler blocked, does it lack CPU?" + evicts,
	},
	NetworkLoss: {
		"the network loses segments, or nothing answers",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. Segments get lost: %d sent and not acknowledged, %d of %d sent again so far, %d "+
				"timeouts in a row, last heard of the client's side %s ago, round trip %s.",
				e.backlog(), e.TCP.UnackedSegments, e.TCP.ResentSegments, e.TCP.SentSegments, e.TCP.Timeouts,
				Short(e.TCP.SinceAck.Duration()), Short(e.TCP.RTT.Duration()))
		},
		"Check the network to the client's address: links, firewalls, connection tracking, MTU. Check that the " +
			"client's host still exists.",
	},
	ClientReadsSlowly: {
		"the client reads more slowly than changes come",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. The client's receive window (now %d bytes) was too small for %s of the %s in "+
				"which there was something to send.",
				e.backlog(), e.TCP.WindowBytes, Short(e.TCP.WindowLimited.Duration()), Short(e.TCP.Busy.Duration()))
		},
		"The client reads more slowly than changes come. Give it more CPU, let its event handler do less, narrow " +
			"its selector, or let it watch metadata only or protobuf.",
	},
	NetworkSlow: {
		"the path to the client is too slow",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. The client's receive window is open (%d bytes) and few segments are lost (%d "+
				"of %d sent again), so the path is the limit: round trip %s.",
				e.backlog(), e.TCP.WindowBytes, e.TCP.ResentSegments, e.TCP.SentSegments, Short(e.TCP.RTT.Duration()))
		},
		"The path to the client is too narrow or too long for what the client watches. Move watchfan nearer, let " +
			"the client accept gzip, narrow its selector, or let it watch metadata only.",
	},
	StreamWindowClosed: {
		"the client does not read this stream of HTTP/2",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. The client's HTTP/2 window of this stream is closed, so the client's program does "+
				"not read this watch. Other streams of the connection go on.", e.heldBack())
		},
		"Check what the client does with the events of this watch: is its handler blocked?" + evicts,
	},
	SharedWindowClosed: {
		"the client does not read its HTTP/2 connection",
		func(e *Evidence) string {
			return fmt.Sprintf("%s. The client's HTTP/2 window of the whole connection is closed. Streams that it "+
				"does not read have used it up.", e.heldBack())
		},
		"Find the other watches of the connection, which have the same client address, and check what the client " +
			"does with their events. A larger window for the connection, or more connections, also helps.",
	},
	WatchfanSlow: {
		"the socket has room, and watchfan has not written yet",
		slowShard,
		"watchfan lacks CPU, or one of its shards has too much to do. Check its CPU limit and throttling, " +
			"watchfan_delivery_duration_seconds and /debug/pprof/profile. Add CPU or replicas.",
	},
	InitialEvents: {
		"the watch has just begun or resumed",
		func(e *Evidence) string {
			what := "objects that were there when it began"
			if e.State.Phase == fanout.Replaying {
				what = "changes since the resourceVersion from which it resumed"
			}
			return fmt.Sprintf("The watch began %s ago and is being sent the %s: %d events, %d bytes so far.",
				Short(e.Now.Sub(e.started)), what, e.State.Events, e.State.Bytes)
		},
		"Do nothing if the number of events grows. Look again in a second.",
	},
	UpstreamBroken: {
		"there is no upstream watch of the resource now",
		func(e *Evidence) string {
			return fmt.Sprintf("The watch has been sent everything, but %s has had no upstream watch for %s. "+
				"watchfan is starting a new one, or lists the collection.",
				e.Lane.Resource, Short(e.Now.Sub(e.Lane.BrokenSince)))
		},
		"Check kube-apiserver and watchfan's log. The line \"Upstream watch broke\" has the error and the time " +
			"of the next attempt. The watch continues when upstream is back.",
	},
	UpstreamUnreachable: {
		"kube-apiserver fails its readiness check",
		func(e *Evidence) string {
			return fmt.Sprintf("The watch has been sent everything, but kube-apiserver fails its readiness "+
				"check. Upstream last sent something of %s: %s.",
				e.Lane.Resource, before(e.Now, e.Lane.LastHeard))
		},
		"Check kube-apiserver and the network to it. watchfan's /readyz and the line \"Upstream is not " +
			"reachable\" in its log say more. The watch continues when upstream is back.",
	},
	UpstreamSilent: {
		"the upstream watch has brought nothing for 90 s",
		func(e *Evidence) string {
			return fmt.Sprintf("The watch has been sent everything, but the upstream watch of %s has brought "+
				"neither an event nor a bookmark for %s. kube-apiserver sends a bookmark each minute.",
				e.Lane.Resource, Short(e.Now.Sub(e.Lane.LastHeard)))
		},
		"Check kube-apiserver and everything between it and watchfan: the connection may hang.",
	},
	FilteredOut: {
		"all is sent; the last changes were not of its selector",
		func(e *Evidence) string {
			return fmt.Sprintf("The watch has been sent everything that it selects. %s changed %s ago, and %d "+
				"times since the watch began. The last change that its namespace and selectors select: %s.",
				e.Lane.Resource, Short(e.Now.Sub(e.Lane.LastChange)), e.changes, before(e.Now, e.State.Selected))
		},
		"Do nothing if the selectors are right. If the client waits for an object, run kubectl get with the " +
			"watch's namespace and selectors and see whether they select it.",
	},
	UpToDate: {
		"all is sent",
		func(e *Evidence) string {
			return fmt.Sprintf("The watch has been sent everything. %s last changed: %s. Upstream last sent "+
				"something: %s.",
				e.Lane.Resource, before(e.Now, e.Lane.LastChange), before(e.Now, e.Lane.LastHeard))
		},
		"Do nothing: there is nothing to send.",
	},
	Ending: {
		"the watch ends",
		func(*Evidence) string {
			return "The watch is ending. The client has up to 5 s to read the last bytes."
		},
		"Do nothing: the watch ends in a moment.",
	},
}

// Meaning says in a few words what the cause is.
func (c Cause) Meaning() string { return explanations[c].meaning }

// unexplained is the explanation of ClientReadsSlowly where the kernel gives no TCPInfo.
var unexplained = explanation{
	"",
	func(e *Evidence) string { return e.backlog() + ". This system does not tell why." },
	"Check the client and the network to it.",
}

func slowShard(e *Evidence) string {
	waited := Short(e.State.Waited)
	message := fmt.Sprintf("%s, and the socket has room. The shard took %s to answer.", e.backlog(), waited)
	if e.State.Phase == fanout.Unknown {
		message = fmt.Sprintf("The watch's shard has not answered for %s.", waited)
	}
	if e.tls {
		message += " Sealing for TLS is part of a shard's work and is not measured separately."
	}
	return message
}

// backlog says how far the watch is behind.
func (e *Evidence) backlog() string {
	s := fmt.Sprintf("%d events of %d bytes wait for the socket", e.State.LagEvents, e.State.LagBytes)
	if e.parked() {
		s += ", which has been full for " + Short(e.Now.Sub(e.State.ParkedSince))
	} else if e.State.LagEvents > 0 {
		s += ", the oldest for " + Short(e.Lag())
	}
	if n := e.Queued(); n > 0 {
		s += fmt.Sprintf("; the socket holds %d bytes, %d of them not sent yet", n, e.TCP.UnsentBytes)
	}
	return s
}

// heldBack says how far a watch is behind whose window is closed.
func (e *Evidence) heldBack() string {
	return fmt.Sprintf("%d events of %d bytes wait, and before them a batch that began to wait %s ago",
		e.State.LagEvents, e.State.LagBytes, Short(e.Now.Sub(e.State.ParkedSince)))
}

// Short writes a duration with about three digits.
func Short(d time.Duration) string {
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

// before says how long before now something happened. The zero time is "never".
func before(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return Short(now.Sub(then)) + " ago"
}
