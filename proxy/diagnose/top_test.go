package diagnose

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Even the longest values fit into 80 columns. The columns up to RESOURCE are always there.
func TestTopView(t *testing.T) {
	list := &WatcherList{Total: 12345, Matching: 2, Reasons: map[Cause]int{ClientNotReading: 1, UpToDate: 1}, Watchers: []WatcherStatus{
		{ID: 999_999, Reason: UpstreamUnreachable, LagEvents: 123_456, LagSeconds: 99.94, QueuedBytes: 4_000_000_000, AgeSeconds: 86_400 * 99,
			Resource: "apiextensions.k8s.io/v1/customresourcedefinitions", UserAgent: strings.Repeat("ä", 300), User: "alice"},
		{ID: 1, Reason: UpToDate, Resource: "v1/pods", UserAgent: "kubelet/v1", User: "alice", Namespace: "ns", LabelSelector: "a=b", Client: "10.0.0.1:2", Stream: 7},
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

func TestTopNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 9_999: "9999", 10_000: "10k", 9_999_999: "9999k", 10_000_000: "10M", 1<<64 - 1: "18446744T"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0", 0.0004: "0ms", 0.9994: "999ms", 0.9996: "1.0s", 99.94: "99.9s", 99.96: "2m", 5999: "100m", 6000: "2h", 172_799: "48h", 172_800: "2d"} {
		if got := span(s); got != want || utf8.RuneCountInString(got) > 5 {
			t.Errorf("span(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	if got, want := wrap("it does not answer at http://127.0.0.1:8002", 14), "it does not\nanswer at\nhttp://127.0.0.1:8002"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
