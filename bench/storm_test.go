//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
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

// TestStormNotice separates the time before a storm from the storm, and from the time after it.
func TestStormNotice(t *testing.T) {
	var latency measure.Histogram
	after := func(events int, took time.Duration) *reading {
		for range events {
			latency.Record(took)
		}
		r := &reading{}
		r.latency.Add(&latency)
		return r
	}
	ms := float64(time.Millisecond)
	got := stormNotice(after(10, time.Hour), after(20, 2*time.Millisecond), after(50, 30*time.Millisecond), after(5, 3*time.Millisecond))
	for unit, want := range map[string]float64{unitBefore: 2 * ms, "before-p50-ns": 2 * ms, unitAfter: 3 * ms,
		unitDuring: 30 * ms, "during-p50-ns": 30 * ms, "during-max-ns": 30 * ms, "x": 15} {
		if v, ok := find(got, unit); !ok || v < 0.98*want || v > 1.02*want {
			t.Errorf("%s: got %v, %t want %v", unit, v, ok, want)
		}
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
