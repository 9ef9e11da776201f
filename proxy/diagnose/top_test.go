package diagnose

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/watchfan/watchfan/proxy/passthrough"
	"github.com/watchfan/watchfan/proxy/request"
)

// Even the longest values fit into 80 columns. The columns up to RESOURCE are always there.
func TestTopView(t *testing.T) {
	list := &WatcherList{Total: 12345, Matching: 2, Reasons: map[Cause]int{ClientNotReading: 1, UpToDate: 1},
		Watchers: []WatcherStatus{
			{ID: 999_999, Reason: UpstreamUnreachable, LagEvents: 123_456, LagSeconds: 99.94,
				QueuedBytes: 4_000_000_000, AgeSeconds: 86_400 * 99,
				Resource: "apiextensions.k8s.io/v1/customresourcedefinitions", UserAgent: strings.Repeat("ä", 300),
				User: "alice"},
			{ID: 1, Reason: UpToDate, Resource: "v1/pods", UserAgent: "kubelet/v1", User: "alice", Namespace: "ns",
				LabelSelector: "a=b", Client: "10.0.0.1:2", Stream: 7},
		}}
	want := `watchfan: 12345 watches, 2 matching, 2 shown
1 ClientNotReading, 1 UpToDate

    ID REASON                LAG OLDEST QUEUED   AGE RESOURCE     USER AGENT, U…
999999 UpstreamUnreachable  123k  99.9s  4000M   99d customresou… äääääääääääää…
     1 UpToDate                0      0      0     0 pods         kubelet/v1  a…
`
	if got := topView(list, 80); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := topView(list, 0); !strings.Contains(got, "kubelet/v1  alice  -n ns -l a=b  10.0.0.1:2/7\n") {
		t.Errorf("without a width: %s", got)
	}
}

// The watches that pass through come last, with their reasons, and have a third of the terminal.
func TestTopPassedThrough(t *testing.T) {
	list := &WatcherList{Total: 30, Matching: 30, Reasons: map[Cause]int{UpToDate: 30}, Watchers: make([]WatcherStatus, 20)}
	list.fit(20)
	if len(list.Watchers) != 20 {
		t.Errorf("%d watches are shown, want 20", len(list.Watchers))
	}
	list.Passed = PassedList{Total: 8, Matching: 8, Reasons: map[request.Reason]int{request.TableRows: 7, request.History: 1}}
	for range 8 {
		list.Passed.Watchers = append(list.Passed.Watchers, PassedStatus{Reason: request.TableRows, Resource: "v1/pods", UserAgent: "kubectl", User: "alice", Name: "x", AgeSeconds: 3})
	}
	list.fit(20)
	want := `
8 watches pass through, 8 matching, 6 shown: 7 table_rows, 1 history
     - table_rows              -      -      -  3.0s pods         kubectl  alice  x
`
	if view := topView(list, 0); len(list.Watchers) != 12 || !strings.Contains(view, want) || strings.Count(view, "\n") != 24 {
		t.Errorf("%d watches and\n%s\nwant 12, and within 24 lines\n%s", len(list.Watchers), view, want)
	}
	list.fit(1)
	if len(list.Watchers) != 0 || len(list.Passed.Watchers) != 0 {
		t.Errorf("on one line: %d and %d", len(list.Watchers), len(list.Passed.Watchers))
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
	out, err := os.Create(filepath.Join(t.TempDir(), "help"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if code := Top([]string{"--help"}, os.Stdin, out, io.Discard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	help, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Causes {
		m := regexp.MustCompile(`\n  ` + string(c) + ` +([a-z].{5,56})\n`).FindSubmatch(help)
		if m == nil {
			t.Errorf("%s is not explained in\n%s", c, help)
		}
	}
}

func TestTopNumbers(t *testing.T) {
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
