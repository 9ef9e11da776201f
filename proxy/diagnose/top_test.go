package diagnose

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/watchfan/watchfan/proxy/passthrough"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/watchers"
)

// exampleList has the longest values that there are.
func exampleList() *WatcherList {
	return &WatcherList{Total: 12345, Matching: 2, Reasons: map[watchers.Cause]int{watchers.ClientNotReading: 1, watchers.UpToDate: 1},
		Watchers: []WatcherStatus{
			{ID: 999_999, Reason: watchers.UpstreamUnreachable, LagEvents: 123_456, LagSeconds: 99.94,
				QueuedBytes: 4_000_000_000, AgeSeconds: 86_400 * 99,
				Resource: "apiextensions.k8s.io/v1/customresourcedefinitions", UserAgent: strings.Repeat("ä", 300),
				User: "alice"},
			{ID: 1, Reason: watchers.UpToDate, Resource: "v1/pods", UserAgent: "kubelet/v1", User: "alice", Namespace: "ns",
				LabelSelector: "a=b", Client: "10.0.0.1:2", Stream: 7},
		}}
}

// exampleState is that of a watchfan under load.
func exampleState() *DebugState {
	return &DebugState{Upstream: "https://10.0.0.1:6443", Processors: 4, Now: &Sample{
		Upstream: 120.4, Deliveries: 120_400, Bytes: 5_500_000, Latency: 0.0123, Processors: 0.456, Memory: 123 << 20,
	}}
}

// texts returns what a view draws, and fails if a line is wider than the view.
func (v *topView) texts(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, l := range v.lines() {
		if n := utf8.RuneCountInString(l.text); v.width > 0 && n > v.width {
			t.Errorf("a line of %d characters on a terminal of %d: %q", n, v.width, l.text)
		}
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// Even the longest values fit. A narrow terminal has fewer columns, and a wide one longer names.
func TestTopView(t *testing.T) {
	for width, want := range map[int]string{
		40: `watchfan: 12345 watches, 2 matching, 2 …
10.0.0.1:6443  in 120/s  out 120k/s 5.2…
1 ClientNotReading, 1 UpToDate

    ID REASON              RESOURCE
999999 UpstreamUnreachable customresou…
     1 UpToDate            pods
`,
		60: `watchfan: 12345 watches, 2 matching, 2 shown, by slowest
https://10.0.0.1:6443  in 120/s  out 120k/s 5.2MiB/s  p99 1…
1 ClientNotReading, 1 UpToDate

    ID REASON                LAG OLDEST RESOURCE     USER A…
999999 UpstreamUnreachable  123k  99.9s customresou… ääääää…
     1 UpToDate                0      0 pods         kubele…
`,
		80: `watchfan: 12345 watches, 2 matching, 2 shown, by slowest
https://10.0.0.1:6443  in 120/s  out 120k/s 5.2MiB/s  p99 12ms  CPU 0.46 of 4  …
1 ClientNotReading, 1 UpToDate

    ID REASON                LAG OLDEST QUEUED   AGE RESOURCE     USER AGENT, U…
999999 UpstreamUnreachable  123k  99.9s 3.7GiB   99d customresou… äääääääääääää…
     1 UpToDate                0      0     0B     0 pods         kubelet/v1  a…
`,
		160: `watchfan: 12345 watches, 2 matching, 2 shown, by slowest
https://10.0.0.1:6443  in 120/s  out 120k/s 5.2MiB/s  p99 12ms  CPU 0.46 of 4  memory 123MiB
1 ClientNotReading, 1 UpToDate

    ID REASON                LAG OLDEST QUEUED   AGE RESOURCE                       USER AGENT, USER, SELECTOR
999999 UpstreamUnreachable  123k  99.9s 3.7GiB   99d customresourcedefinitions      ` + strings.Repeat("ä", 75) + `…
     1 UpToDate                0      0     0B     0 pods                           kubelet/v1  alice  -n ns -l a=b  10.0.0.1:2/7
`,
	} {
		v := topView{list: exampleList(), state: exampleState(), width: width}
		if got := v.texts(t); got != want {
			t.Errorf("%d columns: got\n%swant\n%s", width, got, want)
		}
	}
	v := topView{list: exampleList(), order: "lag"}
	if got := v.texts(t); !strings.Contains(got, "2 shown, by lag\n\n1 Client") ||
		!strings.Contains(got, "kubelet/v1  alice  -n ns -l a=b  10.0.0.1:2/7\n") {
		t.Errorf("without a width and a state: %s", got)
	}
}

// Slow watches are coloured by where the cause is.
func TestTopColours(t *testing.T) {
	list := &WatcherList{Watchers: []WatcherStatus{
		{ID: 1, Reason: watchers.ClientNotReading}, {ID: 2, Reason: watchers.UpstreamSilent}, {ID: 3, Reason: watchers.FilteredOut},
	}}
	v := topView{list: list}
	for colours, want := range map[bool][]string{
		true:  {"\x1b[31m     1 ", "\x1b[33m     2 ", "     3 "},
		false: {"     1 ", "     2 ", "     3 "},
	} {
		for i, l := range v.lines()[topHead:] {
			if got := l.draw(colours); !strings.HasPrefix(got, want[i]) || strings.Contains(want[i], "\x1b") != strings.HasSuffix(got, "\x1b[0m") {
				t.Errorf("colours %t: %q, want %q", colours, got, want[i])
			}
		}
	}
}

// The watches that pass through come last, with their reasons, and have a third of the terminal.
func TestTopPassedThrough(t *testing.T) {
	list := &WatcherList{Total: 30, Matching: 30, Reasons: map[watchers.Cause]int{watchers.UpToDate: 30}}
	for id := range 20 {
		list.Watchers = append(list.Watchers, WatcherStatus{ID: uint64(id + 1), Reason: watchers.UpToDate})
	}
	if passed, watches := list.fit(20); passed != 0 || watches != 20 {
		t.Errorf("%d and %d lines, want 0 and 20", passed, watches)
	}
	list.Passed = PassedList{Total: 8, Matching: 8, Reasons: map[request.Reason]int{request.TableRows: 7, request.History: 1}}
	for range 8 {
		list.Passed.Watchers = append(list.Passed.Watchers, PassedStatus{Reason: request.TableRows, Resource: "v1/pods", UserAgent: "kubectl", User: "alice", Name: "x", AgeSeconds: 3})
	}
	from := adminWith(t, func() (*WatcherList, int) { return list, http.StatusOK })
	want := `
8 watches pass through, 8 matching, 6 shown: 7 table_rows, 1 history
     - table_rows              -      -      -  3.0s pods         kubectl  alice  x
`
	view := strings.NewReplacer("\x1b[K", "", "\x1b[H", "", "\x1b[J", "").Replace(from.picture(make(url.Values), 100, 20+topHead, false))
	if !strings.Contains(view, "\n"+want[1:]) || strings.Count(view, "\n") != 20+topHead || strings.Count(view, " UpToDate ") != 12 {
		t.Errorf("got\n%s\nwant 12 watches, and within %d lines\n%s", view, 20+topHead, want)
	}
	if passed, watches := list.fit(1); passed != 0 || watches != 0 {
		t.Errorf("on one line: %d and %d", passed, watches)
	}
}

// adminWith is an admin port that answers with a list and a code.
func adminWith(t *testing.T, watches func() (*WatcherList, int)) *adminPort {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serverName)
		if r.URL.Path == "/debug/lanes" {
			_ = json.NewEncoder(w).Encode(exampleState())
			return
		}
		list, code := watches()
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(s.Close)
	return &adminPort{url: s.URL}
}

// On a terminal top draws again and again, an error too, until it is interrupted.
func TestTopLive(t *testing.T) {
	var failing atomic.Bool
	from := adminWith(t, func() (*WatcherList, int) {
		if failing.Load() {
			return nil, http.StatusInternalServerError
		}
		return exampleList(), http.StatusOK
	})
	ctx, stop := context.WithCancel(t.Context())
	var drawn strings.Builder
	size := func() (int, int, error) {
		if strings.Contains(drawn.String(), "USER AGENT") {
			failing.Store(true)
			stop()
		}
		return 80, 24, nil
	}
	if err := from.topLive(ctx, make(url.Values), &drawn, size); err != nil {
		t.Fatal(err)
	}
	first, last, _ := strings.Cut(strings.TrimPrefix(drawn.String(), "\x1b[2J\x1b[H"), "\x1b[H")
	if !strings.Contains(first, "ClientNotReading") || !strings.Contains(last, "500") || strings.Contains(last, "\x1b[H") {
		t.Errorf("drew %q, then %q", first, last)
	}
	if err := from.topLive(ctx, make(url.Values), &drawn, size); err == nil {
		t.Error("an error is no error at the start")
	}
}

// Each reason for which a watch passes through is explained.
func TestPassedBecause(t *testing.T) {
	for _, why := range request.Reasons {
		if passedBecause[why] == "" {
			t.Errorf("%s is not explained", why)
		}
	}
	if len(passedBecause) != len(request.Reasons) {
		t.Errorf("%d explanations of %d reasons", len(passedBecause), len(request.Reasons))
	}
}

// What clients choose is shown as plain text, and bounded.
func TestPassedCounts(t *testing.T) {
	var open []*passthrough.Watch
	for i := range 60 {
		open = append(open, &passthrough.Watch{Resource: strings.Repeat("x", i) + "\x1b", Why: request.Resource})
	}
	open = append(open, open[0])
	counts := PassedCounts(open)
	if len(counts) != mostPassedCounts || counts[0].Watches != 2 || strings.ContainsRune(counts[0].Resource, '\x1b') || counts[0].Message == "" {
		t.Errorf("%d counts, the first %+v", len(counts), counts[0])
	}
	if counts := PassedCounts(nil); counts == nil || len(counts) != 0 {
		t.Errorf("of none: %v", counts)
	}
}

// The help has every reason with its meaning, in lines of a terminal's width.
func TestTopHelp(t *testing.T) {
	help := Top().Long + "\n"
	for _, c := range watchers.Causes {
		m := regexp.MustCompile(`\n  ` + string(c) + ` +([a-z].{5,56})\n`).FindStringSubmatch(help)
		if m == nil {
			t.Errorf("%s is not explained in\n%s", c, help)
		}
	}
}

func TestTopNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0KiB", 10_189: "10KiB", 1_000_000: "977KiB",
		1 << 20: "1.0MiB", 999 << 20: "999MiB", 1000 << 20: "1.0GiB", 1 << 50: "1PiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.04: "0.0", 9.94: "9.9", 9.96: "10", 12_345.6: "12k"} {
		if got := rate(n); got != want {
			t.Errorf("rate(%v) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 9_999: "9999", 10_000: "10k", 9_999_999: "9999k", 10_000_000: "10M",
		1<<64 - 1: "18446744T"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0", 0.0004: "0ms", 0.9994: "999ms", 0.9996: "1.0s", 99.94: "99.9s",
		99.96: "2m", 5999: "100m", 6000: "2h", 172_799: "48h", 172_800: "2d"} {
		if got := span(s); got != want || utf8.RuneCountInString(got) > 5 {
			t.Errorf("span(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	got, want := wrap("it does not answer at http://127.0.0.1:8002", 14),
		"it does not\nanswer at\nhttp://127.0.0.1:8002"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
