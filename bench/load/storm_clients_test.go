package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
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
	f := func(want StormState, e Endpoint, uri string, objects int, asked func() int64) {
		t.Helper()
		states := filepath.Join(t.TempDir(), "states")
		stdin, orders := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- RunStormClients(t.Context(), states, stdin) }()
		if err := json.NewEncoder(orders).Encode(StormJob{Addr: e.Addr, TLS: e.TLS != nil, Clients: n, Objects: objects,
			Request: RequestHead(e, uri, false)}); err != nil {
			t.Fatal(err)
		}
		var got StormState
		await := func(done func() error) {
			steady.Until(t, "the clients' state", func() error {
				text, err := os.ReadFile(states)
				if err == nil {
					err = json.Unmarshal(text, &got)
				}
				if err == nil {
					err = done()
				}
				return err
			})
		}
		await(func() error { return nil })
		if asked() != 0 {
			t.Errorf("%d clients have not waited", asked())
		}
		begin := time.Now()
		orders.Write([]byte("\n"))
		await(func() error {
			if got.Opened < want.Opened {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		if last := time.Unix(0, got.LastLive); last.Before(begin) || last.After(time.Now()) {
			t.Errorf("the last became live at %v, begun at %v", last, begin)
		}
		got.LastLive = 0
		if got != want {
			t.Errorf("got %+v want %+v", got, want)
		}
		orders.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	const informers = "/?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	f(StormState{Opened: n}, serveInitialEvents(t, true, objects, true), informers, objects, func() int64 { return 0 })

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
	f(StormState{Opened: n + 1, Refused: 1, Failed: 1, FirstError: "answered 403"}, plain, "/?watch=1&resourceVersion=7", 0, asked.Load)
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
