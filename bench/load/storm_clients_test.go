package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestStormClients: the clients connect on an order, connect again after a refusal or the end of their
// watch, and count the results.
func TestStormClients(t *testing.T) {
	const n, objects = 5, 1000
	f := func(want StormState, e Endpoint, uri string, objects int, asked func() int64, then func()) {
		t.Helper()
		stdin, orders := io.Pipe()
		states, stdout := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- RunStormClients(t.Context(), stdin, stdout) }()
		if err := json.NewEncoder(orders).Encode(StormJob{Addr: e.Addr, TLS: e.TLS != nil, Clients: n, Objects: objects,
			Request: RequestHead(e, uri, false)}); err != nil {
			t.Fatal(err)
		}
		var got StormState
		state := json.NewDecoder(states)
		if err := state.Decode(&got); err != nil || got != (StormState{}) || asked() != 0 {
			t.Errorf("before the storm: %+v, %v, %d clients have not waited", got, err, asked())
		}
		begin := time.Now()
		orders.Write([]byte("\n"))
		if err := state.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.LastLive.Before(begin) || got.LastLive.After(time.Now()) {
			t.Errorf("the last became live at %v, begun at %v", got.LastLive, begin)
		}
		if got.LastLive = (time.Time{}); got != want {
			t.Errorf("got %+v want %+v", got, want)
		}
		then()
		orders.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	const informers = "/?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	f(StormState{Opened: n}, serveInitialEvents(t, true, objects, true), informers, objects, func() int64 { return 0 }, func() {})

	var asked atomic.Int64
	end := make(chan struct{})
	plain := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0")
			http.Error(w, "later", http.StatusTooManyRequests)
		case 2:
			http.Error(w, "never", http.StatusForbidden)
		case 3:
			w.(http.Flusher).Flush()
			<-end
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	f(StormState{Opened: n, Refused: 1, Failed: 1, FirstError: "answered 403"}, plain, "/?watch=1&resourceVersion=7", 0, asked.Load, func() {
		close(end)
		steady.Until(t, "another watch", func() error {
			if asked.Load() < n+3 {
				return fmt.Errorf("%d asked", asked.Load())
			}
			return nil
		})
	})
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
func serveInitialEvents(t *testing.T, secure bool, n int, end bool) Endpoint {
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
