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

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/passthrough"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

// On a terminal top draws what fits again and again, an error too, until it is interrupted.
func TestTopLive(t *testing.T) {
	var failing atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serverName)
		switch {
		case r.URL.Path == "/debug/lanes":
			_ = json.NewEncoder(w).Encode(DebugState{Upstream: "https://10.0.0.1:6443", Processors: 4, Now: &Sample{
				Upstream: 120.4, Deliveries: 120_400, Bytes: 5_500_000, Latency: 0.0123, Processors: 0.456, Memory: 123 << 20,
			}})
		case failing.Load():
			w.WriteHeader(http.StatusInternalServerError)
		default:
			list := WatcherList{Total: 12345, Watchers: []WatcherStatus{{ID: 1, Reason: watchers.ClientNotReading}}}
			list.Watchers[0].UserAgent = strings.Repeat("ä", 300)
			list.Passed = PassedList{Total: 90, Watchers: make([]PassedStatus, 90)}
			list.writeText(w)
			if r.URL.Query().Get("limit") != "12" {
				t.Errorf("asked %s", r.URL)
			}
		}
	}))
	defer s.Close()
	from := &adminPort{url: s.URL}
	ctx, stop := context.WithCancel(t.Context())
	var drawn strings.Builder
	size := func() (int, int, error) {
		if strings.Contains(drawn.String(), "ClientNotReading") {
			failing.Store(true)
			stop()
		}
		return 40, 19, nil
	}
	if err := from.topLive(ctx, url.Values{"limit": {"12"}}, &drawn, size); err != nil {
		t.Fatal(err)
	}
	first, last, _ := strings.Cut(strings.TrimPrefix(drawn.String(), "\x1b[2J\x1b[H"), "\x1b[H")
	want := `https://10.0.0.1:6443  in 120.4/s  out …
12345 watches, 0 matching, 1 shown: ` + `

ID  REASON            STATE  LAG  OLDES…
1   ClientNotReading         0    0s   …

90 watches pass through, 0 matching, 90…
`
	if got := strings.ReplaceAll(first, "\x1b[K", ""); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 18 {
		t.Errorf("drew\n%swant\n%s", got, want)
	}
	if !strings.HasPrefix(last, "500 Internal Server Error") {
		t.Errorf("then drew %q", last)
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

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0KiB", 10_189: "10KiB", 1_000_000: "977KiB",
		1 << 20: "1.0MiB", 999 << 20: "999MiB", 1000 << 20: "1.0GiB", 1 << 50: "1PiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}
