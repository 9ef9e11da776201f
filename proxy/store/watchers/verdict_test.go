package watchers

import (
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Each cause is found from its evidence. The cause nearest to the client comes first.
func TestCauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	stalled := &downstream.TCPInfo{QueuedBytes: 2_000_000, UnsentBytes: 2_000_000, SegmentBytes: 1400,
		SinceSent: 5, SinceAck: 1}
	cut := &downstream.TCPInfo{QueuedBytes: 2_000_000, UnsentBytes: 1_990_000, UnackedSegments: 7, SegmentBytes: 1400,
		WindowBytes: 60_000, Timeouts: 4, SinceSent: 1, SinceAck: 9, Recovering: true}
	counted := NewMetrics(metrics.NewSet())
	for _, c := range []struct {
		name   string
		change func(*Evidence)
		want   Cause
		says   string
	}{
		{"nothing has ever happened", func(e *Evidence) { e.Lane.LastChange = time.Time{} }, UpToDate,
			"last changed: never"},
		{"all is sent", func(e *Evidence) {}, UpToDate, "last changed: 10s ago"},
		{"bytes are on their way", func(e *Evidence) {
			e.TCP = &downstream.TCPInfo{QueuedBytes: 1000, UnackedSegments: 1, WindowBytes: 60_000, SegmentBytes: 1400,
				SinceSent: 0.05, SinceAck: 3}
		}, UpToDate, ""},

		{"the client does not read, and the kernel still takes all", func(e *Evidence) { e.TCP = stalled },
			ClientNotReading,
			"0 events of 0 bytes wait for the socket; the socket holds 2000000 bytes, 2000000 of them not sent yet"},
		{"the client does not read", func(e *Evidence) { e.park(before(time.Minute)); e.TCP = stalled },
			ClientNotReading, "full for 1m0s"},
		{"it has room for less than a segment", func(e *Evidence) {
			e.TCP = &downstream.TCPInfo{QueuedBytes: 9000, UnsentBytes: 9000, WindowBytes: 500,
				SegmentBytes: 1400, SinceSent: 3}
		}, ClientNotReading, "(500 bytes)"},
		{"it dropped what came beyond its buffer, and says so", func(e *Evidence) {
			e.TCP = &downstream.TCPInfo{QueuedBytes: 3000, UnackedSegments: 2, Timeouts: 3, Recovering: true,
				SegmentBytes: 1400, SinceSent: 2, SinceAck: 2}
		}, ClientNotReading, ""},
		{"it does not read, and then its host is gone", func(e *Evidence) {
			probed := *stalled
			probed.Probes = 3
			e.TCP = &probed
		}, NetworkLoss, ""},
		{"nothing answers", func(e *Evidence) { e.TCP = cut }, NetworkLoss, "7 sent and not acknowledged"},
		{"nothing answers, and the socket is full", func(e *Evidence) { e.park(before(time.Second)); e.TCP = cut },
			NetworkLoss, "last heard of the client's side 9s ago"},
		{"some get lost", func(e *Evidence) {
			e.TCP = &downstream.TCPInfo{QueuedBytes: 50_000, UnackedSegments: 9, WindowBytes: 900_000,
				SegmentBytes: 1400, Recovering: true, Lost: 2}
		}, NetworkLoss, ""},
		{"many got lost", func(e *Evidence) {
			e.park(before(time.Second))
			e.TCP = &downstream.TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400,
				SentSegments: 1000, ResentSegments: 50, Busy: 10}
		}, NetworkLoss, "50 of 1000 sent again"},
		{"the path is slow", func(e *Evidence) {
			e.park(before(time.Second))
			e.TCP = &downstream.TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400,
				SentSegments: 1000, Busy: 10, WindowLimited: 1, RTT: 0.3}
		}, NetworkSlow, "round trip 300ms"},
		{"the stream's window is closed", func(e *Evidence) {
			e.park(before(time.Minute))
			e.window = exchange.StreamWindow
			e.TCP = &downstream.TCPInfo{WindowBytes: 60_000, SegmentBytes: 1400}
		}, StreamWindowClosed, "began to wait 1m0s ago. The client's HTTP/2 window of this stream"},
		{"the connection's window is closed", func(e *Evidence) {
			e.park(before(time.Second))
			e.window = exchange.ConnectionWindow
		}, SharedWindowClosed, "window of the whole connection is closed"},
		{"the client's window was the limit", func(e *Evidence) {
			e.park(before(time.Second))
			e.TCP = &downstream.TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400,
				SentSegments: 1000, Busy: 10, WindowLimited: 8}
		}, ClientReadsSlowly, "8s of the 10s"},
		{"its window is closed, but opens again and again", func(e *Evidence) {
			e.park(before(time.Second))
			e.TCP = &downstream.TCPInfo{QueuedBytes: 50_000, UnsentBytes: 50_000, SegmentBytes: 1400, SinceSent: 0.01}
		}, ClientReadsSlowly, ""},
		{"parked, and the system does not tell why", func(e *Evidence) { e.park(before(time.Second)); e.TCP = nil },
			ClientReadsSlowly, "does not tell why"},

		{"a change waits", func(e *Evidence) { e.State.LagEvents, e.State.Oldest = 3, before(time.Second) },
			WatchfanSlow, "3 events of 0 bytes wait for the socket, the oldest for 1s"},
		{"a change waits for its turn", func(e *Evidence) {
			e.State.LagEvents, e.State.Oldest = 3, before(time.Millisecond)
		}, UpToDate, ""},
		{"the shard is late", func(e *Evidence) { e.State.Waited = time.Second; e.tls = true }, WatchfanSlow, "TLS"},
		{"the shard does not answer", func(e *Evidence) { e.State = fanout.State{Waited: 2 * time.Second} },
			WatchfanSlow, "has not answered for 2s"},
		{"it has just begun", func(e *Evidence) {
			e.State.Phase, e.State.LagEvents, e.State.Oldest = fanout.InitialEvents, 3, before(time.Second)
		}, InitialEvents, "objects that were there"},
		{"it has come back", func(e *Evidence) { e.State.Phase = fanout.Replaying }, InitialEvents, "changes since"},
		{"it ends", func(e *Evidence) { e.State.Phase = fanout.Stopping }, Ending, ""},

		{"the upstream watch is broken", func(e *Evidence) {
			e.Lane.BrokenSince = before(3 * time.Second)
			e.Lane.Unreachable = true
		}, UpstreamBroken, "for 3s"},
		{"the upstream watch is just being begun anew", func(e *Evidence) {
			e.Lane.BrokenSince = before(time.Millisecond)
		}, UpToDate, ""},
		{"kube-apiserver does not answer", func(e *Evidence) { e.Lane.Unreachable = true }, UpstreamUnreachable, ""},
		{"kube-apiserver says nothing", func(e *Evidence) { e.Lane.LastHeard = before(2 * time.Minute) },
			UpstreamSilent, "for 2m0s"},
		{"kube-apiserver has no bookmarks for it", func(e *Evidence) {
			e.Lane.LastHeard = before(2 * time.Minute)
			e.Lane.NoBookmarks = true
		}, UpToDate, ""},
		{"upstream is broken, and the client does not read", func(e *Evidence) {
			e.Lane.BrokenSince = before(time.Minute)
			e.TCP = stalled
		}, ClientNotReading, ""},

		{"the selectors select nothing", func(e *Evidence) { e.filtered, e.changes = true, 12 }, FilteredOut,
			"12 times since the watch began. The last change that its namespace and selectors select: never"},
		{"the selectors selected something once", func(e *Evidence) {
			e.filtered = true
			e.State.Selected = before(30 * time.Second)
		}, FilteredOut, "30s ago"},
		{"the selectors selected the last change", func(e *Evidence) {
			e.filtered = true
			e.State.Selected = e.Lane.LastChange
		}, UpToDate, ""},
		{"the last change came before the watch", func(e *Evidence) {
			e.filtered = true
			e.started = before(time.Second)
		}, UpToDate, ""},
	} {
		e := &Evidence{
			Now:     now,
			started: before(time.Minute),
			State:   fanout.State{Phase: fanout.Live},
			TCP:     &downstream.TCPInfo{WindowBytes: 60_000, SegmentBytes: 1400, SinceSent: 10, SinceAck: 10},
			Lane: lane.Health{Resource: "v1/pods",
				Status: reflector.Status{LastHeard: before(time.Second), LastChange: before(10 * time.Second)}},
		}
		c.change(e)
		v := e.Verdict(e.Cause())
		if v.Reason != c.want || !strings.Contains(v.Message, c.says) {
			t.Errorf("%s: %s, want %s and %q: %s", c.name, v.Reason, c.want, c.says, v.Message)
		}
		if !strings.HasSuffix(v.Message, ".") || v.Advice == "" || strings.Contains(v.Message, "%!") {
			t.Errorf("%s: %q, %q", c.name, v.Message, v.Advice)
		}
		if counted.evictions[e.evictedFor()] == nil {
			t.Errorf("%s: evicted for %q, which is not counted", c.name, e.evictedFor())
		}
	}
}

func (e *Evidence) park(since time.Time) { e.State.ParkedSince = since }
