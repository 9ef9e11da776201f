//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// TestMain lets the test binary run `bench storm-front`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stormFrontName {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// TestStormFront: the clients connect on an order, connect again after a refusal or the end of
// their watch, and count the results.
func TestStormFront(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 5
	f := func(want stormState, e endpoint, uri string, objects, opened int, asked func() int64) {
		t.Helper()
		front, err := startStormFront(ctx, priorityNormal, e, []string{uri}, n, objects)
		if err != nil {
			t.Fatal(err)
		}
		defer front.stop()
		if got := asked(); got != 0 {
			t.Errorf("%d clients have not waited", got)
		}
		begin := time.Now()
		front.begin()
		looked := 0
		got, err := front.await(ctx, opened, func() error { looked++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if last := time.Unix(0, got.LastLive); last.Before(begin) || last.After(time.Now()) || looked == 0 {
			t.Errorf("the last became live at %v, begun at %v; looked %d times", last, begin, looked)
		}
		got.LastLive, got.Live = 0, 0 // the one whose watch ended is counted as live until it notices
		if got != want {
			t.Errorf("got %+v want %+v", got, want)
		}
	}
	const informers = "/?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	f(stormState{Opened: n}, serveInitialEvents(t, true, stormObjects, true), informers, stormObjects, n,
		func() int64 { return 0 })

	var asked atomic.Int64
	plain := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0")
			http.Error(w, "later", http.StatusTooManyRequests)
		case 2:
			http.Error(w, "never", http.StatusForbidden)
		case 3: // ends at once
			w.(http.Flusher).Flush()
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	f(stormState{Opened: n + 1, Refused: 1, Failed: 1, FirstError: "answered 403"}, plain,
		"/?watch=1&resourceVersion=7", 0, n+1, asked.Load)
}

// TestStormNotice separates the time before a storm from the storm, for the clients' latencies and
// for watchfan's counts.
func TestStormNotice(t *testing.T) {
	start := time.Now()
	var latency measure.Histogram
	after := func(seconds, events int, took time.Duration, waited time.Duration, first, round string) stormMoment {
		for range events {
			latency.Record(took)
		}
		m := stormMoment{at: start.Add(time.Duration(seconds) * time.Second), got: &reading{}}
		m.waited = map[string]time.Duration{"watchfan": waited}
		m.got.latency.Add(&latency)
		if first != "" {
			m.own = make(map[string]buckets)
			for of, count := range map[string]string{"first": first, "round": round} {
				b, err := parseBuckets(page("0", "0", count, count), "took_seconds")
				if err != nil {
					t.Fatal(err)
				}
				m.own[of] = b
			}
		}
		return m
	}
	f := func(want map[string]float64, moments [4]stormMoment) {
		t.Helper()
		metrics, err := stormNotice(moments[0], moments[1], moments[2], moments[3])
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, m := range metrics {
			got[m.unit] = m.value
		}
		if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
			t.Fatalf("got %v want %v", g, w)
		}
		for unit, w := range want {
			if g := got[unit]; g < 0.98*w || g > 1.02*w {
				t.Errorf("%s: got %v want %v", unit, g, w)
			}
		}
	}
	ms := float64(time.Millisecond)
	seen := map[string]float64{
		unitBefore: 2 * ms, "before-p50-ns": 2 * ms, unitAfter: 3 * ms,
		unitDuring: 30 * ms, "during-p50-ns": 30 * ms, "during-max-ns": 30 * ms,
		"x": 15, "watchfan-wait-%": 150,
	}
	f(seen, [4]stormMoment{
		after(0, 10, time.Hour, 0, "", ""), after(4, 20, 2*time.Millisecond, 3*time.Second, "", ""),
		after(6, 50, 30*time.Millisecond, 6*time.Second, "", ""), after(10, 5, 3*time.Millisecond, 7*time.Second, "", ""),
	})
	latency = measure.Histogram{}
	own := maps.Clone(seen)
	// All are between 1 and 10 ms. Of rounds there were none before the storm.
	own["first-before-p99-ns"], own["first-during-p99-ns"], own["round-during-p99-ns"] = 9.91*ms, 9.91*ms, 9.91*ms
	f(own, [4]stormMoment{
		after(0, 10, time.Hour, 0, "7", "7"), after(4, 20, 2*time.Millisecond, 3*time.Second, "8", "7"),
		after(6, 50, 30*time.Millisecond, 6*time.Second, "20", "9"),
		after(10, 5, 3*time.Millisecond, 7*time.Second, "21", "10"),
	})
	moment := after(0, 0, 0, 0, "7", "7")
	if _, err := stormNotice(moment, after(4, 0, 0, 0, "6", "7"), moment, moment); err == nil {
		t.Error("a watchfan that began anew is taken for one that went on")
	}
}

// TestStormUpstream: the report of storms counts each kind of request once.
func TestStormUpstream(t *testing.T) {
	requests := make(map[string]int)
	for i, kind := range auditKinds {
		requests[kind] = 1 << i
	}
	sum := 0.0
	for _, m := range upstream(requests) {
		sum += m.value
	}
	if want := 1<<len(auditKinds) - 1; sum != float64(want) {
		t.Errorf("the kinds add up to %b, want %b", int(sum), want)
	}
}

// initialEvents returns n objects and, if end is set, the end bookmark.
func initialEvents(n int, end bool) []byte {
	var body bytes.Buffer
	for i := range n {
		fmt.Fprintf(&body, `{"type":"ADDED","object":{"n":%d,"pad":"%s"}}`+"\n", i, strings.Repeat("p", i))
	}
	if end {
		body.WriteString(`{"type":"BOOKMARK","object":{"metadata":{` +
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	}
	return body.Bytes()
}

// serveInitialEvents serves watches that begin with them.
func serveInitialEvents(t *testing.T, secure bool, n int, end bool) endpoint {
	body := initialEvents(n, end)
	return serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "1" || q.Get("sendInitialEvents") != "true" || q.Get("resourceVersionMatch") != "NotOlderThan" {
			t.Errorf("asked for %v", r.URL)
		}
		w.WriteHeader(http.StatusOK)
		for p := body; len(p) > 0; p = p[min(len(p), 1000):] {
			io.Copy(w, bytes.NewReader(p[:min(len(p), 1000)]))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
}
