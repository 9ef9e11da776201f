package proxy

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
)

// Each cause is found by what speaks for it, and what is nearest to the client comes first.
func TestCauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	stalled := &TCPInfo{QueuedBytes: 2_000_000, UnsentBytes: 2_000_000, SegmentBytes: 1400, SinceSent: 5, SinceAck: 1}
	cut := &TCPInfo{QueuedBytes: 2_000_000, UnsentBytes: 1_990_000, UnackedSegments: 7, SegmentBytes: 1400, WindowBytes: 60_000, Timeouts: 4, SinceSent: 1, SinceAck: 9, Recovering: true}
	for _, c := range []struct {
		name   string
		change func(*evidence)
		want   Cause
		says   string
	}{
		{"nothing has ever happened", func(e *evidence) { e.lane.lastChange = time.Time{} }, UpToDate, "last changed: never"},
		{"all is sent", func(e *evidence) {}, UpToDate, "last changed: 10s ago"},
		{"bytes are on their way", func(e *evidence) {
			e.tcp = &TCPInfo{QueuedBytes: 1000, UnackedSegments: 1, WindowBytes: 60_000, SegmentBytes: 1400, SinceSent: 0.05, SinceAck: 3}
		}, UpToDate, ""},

		{"the client does not read, and the kernel still takes all", func(e *evidence) { e.tcp = stalled }, ClientNotReading, "0 events of 0 bytes wait for the socket; 2000000 bytes in it"},
		{"the client does not read", func(e *evidence) { e.park(before(time.Minute)); e.tcp = stalled }, ClientNotReading, "full for 1m0s"},
		{"it has room for less than a segment", func(e *evidence) {
			e.tcp = &TCPInfo{QueuedBytes: 9000, UnsentBytes: 9000, WindowBytes: 500, SegmentBytes: 1400, SinceSent: 3}
		}, ClientNotReading, "(500 bytes)"},
		{"it dropped what came beyond its buffer, and says so", func(e *evidence) {
			e.tcp = &TCPInfo{QueuedBytes: 3000, UnackedSegments: 2, Timeouts: 3, Recovering: true, SegmentBytes: 1400, SinceSent: 2, SinceAck: 2}
		}, ClientNotReading, ""},
		{"it does not read, and then its host is gone", func(e *evidence) {
			probed := *stalled
			probed.Probes = 3
			e.tcp = &probed
		}, NetworkLoss, ""},
		{"nothing answers", func(e *evidence) { e.tcp = cut }, NetworkLoss, "7 not acknowledged"},
		{"nothing answers, and the socket is full", func(e *evidence) { e.park(before(time.Second)); e.tcp = cut }, NetworkLoss, "last heard of the client's side 9s ago"},
		{"some get lost", func(e *evidence) {
			e.tcp = &TCPInfo{QueuedBytes: 50_000, UnackedSegments: 9, WindowBytes: 900_000, SegmentBytes: 1400, Recovering: true, Lost: 2}
		}, NetworkLoss, ""},
		{"many got lost", func(e *evidence) {
			e.park(before(time.Second))
			e.tcp = &TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400, SentSegments: 1000, ResentSegments: 50, Busy: 10}
		}, NetworkLoss, "50 of 1000 sent again"},
		{"the path is slow", func(e *evidence) {
			e.park(before(time.Second))
			e.tcp = &TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400, SentSegments: 1000, Busy: 10, WindowLimited: 1, RTT: 0.3}
		}, NetworkSlow, "round trip 300ms"},
		{"the client's window was the limit", func(e *evidence) {
			e.park(before(time.Second))
			e.tcp = &TCPInfo{QueuedBytes: 50_000, WindowBytes: 900_000, SegmentBytes: 1400, SentSegments: 1000, Busy: 10, WindowLimited: 8}
		}, ClientReadsSlowly, "8s of the 10s"},
		{"its window is closed, but opens again and again", func(e *evidence) {
			e.park(before(time.Second))
			e.tcp = &TCPInfo{QueuedBytes: 50_000, UnsentBytes: 50_000, SegmentBytes: 1400, SinceSent: 0.01}
		}, ClientReadsSlowly, ""},
		{"parked, and the system does not tell why", func(e *evidence) { e.park(before(time.Second)); e.tcp = nil }, ClientReadsSlowly, "does not tell why"},

		{"a change waits", func(e *evidence) { e.state.LagEvents, e.state.Oldest = 3, before(time.Second) }, WatchfanSlow, "3 events of 0 bytes wait for the socket, the oldest for 1s"},
		{"a change waits for its turn", func(e *evidence) { e.state.LagEvents, e.state.Oldest = 3, before(time.Millisecond) }, UpToDate, ""},
		{"the shard is late", func(e *evidence) { e.state.Waited = time.Second; e.tls = true }, WatchfanSlow, "TLS"},
		{"the shard does not answer", func(e *evidence) { e.state = fanout.State{Waited: 2 * time.Second} }, WatchfanSlow, "has not answered for 2s"},
		{"it has just begun", func(e *evidence) {
			e.state.Phase, e.state.LagEvents, e.state.Oldest = fanout.InitialEvents, 3, before(time.Second)
		}, InitialEvents, "objects that were there"},
		{"it has come back", func(e *evidence) { e.state.Phase = fanout.Replaying }, InitialEvents, "changes since"},
		{"it ends", func(e *evidence) { e.state.Phase = fanout.Stopping }, Ending, ""},

		{"the upstream watch is broken", func(e *evidence) { e.lane.brokenSince = before(3 * time.Second); e.lane.unreachable = true }, UpstreamBroken, "for 3s"},
		{"the upstream watch is just being begun anew", func(e *evidence) { e.lane.brokenSince = before(time.Millisecond) }, UpToDate, ""},
		{"kube-apiserver does not answer", func(e *evidence) { e.lane.unreachable = true }, UpstreamUnreachable, ""},
		{"kube-apiserver says nothing", func(e *evidence) { e.lane.heard = before(2 * time.Minute) }, UpstreamSilent, "for 2m0s"},
		{"kube-apiserver has no bookmarks for it", func(e *evidence) { e.lane.heard = before(2 * time.Minute); e.lane.noBookmarks = true }, UpToDate, ""},
		{"upstream is broken, and the client does not read", func(e *evidence) { e.lane.brokenSince = before(time.Minute); e.tcp = stalled }, ClientNotReading, ""},

		{"the selectors select nothing", func(e *evidence) { e.filtered, e.changes = true, 12 }, FilteredOut, "12 times since the watch began, but the last change that its namespace and selectors select: never"},
		{"the selectors selected something once", func(e *evidence) { e.filtered = true; e.state.Selected = before(30 * time.Second) }, FilteredOut, "30s ago"},
		{"the selectors selected the last change", func(e *evidence) { e.filtered = true; e.state.Selected = e.lane.lastChange }, UpToDate, ""},
		{"the last change came before the watch", func(e *evidence) { e.filtered = true; e.started = before(time.Second) }, UpToDate, ""},
	} {
		e := &evidence{
			now:     now,
			started: before(time.Minute),
			state:   fanout.State{Phase: fanout.Live},
			tcp:     &TCPInfo{WindowBytes: 60_000, SegmentBytes: 1400, SinceSent: 10, SinceAck: 10},
			lane:    laneHealth{resource: "v1/pods", heard: before(time.Second), lastChange: before(10 * time.Second)},
		}
		c.change(e)
		v := e.verdict(e.cause())
		if v.Reason != c.want || !strings.Contains(v.Message, c.says) {
			t.Errorf("%s: %s, want %s and %q: %s", c.name, v.Reason, c.want, c.says, v.Message)
		}
		if !strings.HasSuffix(v.Message, ".") || v.Advice == "" || strings.Contains(v.Message, "%!") {
			t.Errorf("%s: %q, %q", c.name, v.Message, v.Advice)
		}
		if evictions[e.evictedFor()] == nil {
			t.Errorf("%s: evicted for %q, which is not counted", c.name, e.evictedFor())
		}
	}
}

func (e *evidence) park(since time.Time) { e.state.ParkedSince = since }

// What clients say of themselves reaches a terminal as one short line of plain text.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"kubelet/v1.37":             "kubelet/v1.37",
		"a\x1b[2Jb\nc\td":           "a\ufffd[2Jb\ufffdc\ufffdd",
		"\xff\u009b1m\u202eevil":    "\ufffd\ufffd1m\ufffdevil",
		"ä":                         "ä",
		strings.Repeat("ä", 10_000): strings.Repeat("ä", (maxShown-len("…"))/2) + "\ufffd…",
	} {
		if got := shown(in); got != want {
			t.Errorf("shown(%.20q…) = %q, want %q", in, got, want)
		}
	}
}

// Of a token no more is shown than the name of the service account that it is for.
func TestShownName(t *testing.T) {
	jwt := func(payload string) string {
		return "eyJhbGciOiJub25lIn0." + strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(payload)), "=") + ".c2ln"
	}
	for _, c := range []struct {
		id   identity
		want string
	}{
		{identity{}, "(anonymous)"},
		{identity{kind: kindOwn}, "(own)"},
		{identity{kind: kindCertificate, user: &userInfo{name: "alice"}}, "alice"},
		{identity{kind: kindToken, token: "secret"}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":"system:serviceaccount:kube-system:deployer"}`)}, "system:serviceaccount:kube-system:deployer"},
		{identity{kind: kindToken, token: jwt(`{"sub":"alice@example.com"}`)}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":"system:serviceaccount:x"}`)}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":`)}, "(token)"},
		{identity{kind: kindToken, token: "a.!.c"}, "(token)"},
	} {
		if got := c.id.shownName(); got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

// The register costs a watch no more than its comment says.
func TestWatcherSize(t *testing.T) {
	if got := unsafe.Sizeof(watcher{}) + unsafe.Sizeof(&watcher{}); got != 88 {
		t.Errorf("%d bytes for each watch", got)
	}
}

// Whatever is asked for, a list has a bound and an order.
func FuzzWatchersQuery(f *testing.F) {
	f.Add("format=json&limit=10&sort=lag&minLagBytes=1Mi&minAge=1m&state=Live&reason=UpToDate")
	f.Add("limit=-1")
	f.Fuzz(func(t *testing.T, query string) {
		ctx := &fasthttp.RequestCtx{}
		ctx.Request.SetRequestURI("/debug/watchers")
		ctx.URI().SetQueryString(query)
		q, err := parseWatchersQuery(ctx, false)
		if err == nil && (q.limit < 1 || q.limit > mostShown || !slices.Contains(watcherSorts, q.sort)) {
			t.Errorf("%q: %+v", query, q)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%q: an error of %d bytes", query, len(err.Error()))
		}
	})
}

// Nothing of a token is shown but the name of a service account.
func FuzzTokenSubject(f *testing.F) {
	f.Add("a.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c")
	f.Fuzz(func(t *testing.T, token string) {
		name, ok := tokenSubject(token)
		if _, _, account := serviceAccount(name); ok != account || !ok && name != "" {
			t.Errorf("%q: %q, %v", token, name, ok)
		}
	})
}
