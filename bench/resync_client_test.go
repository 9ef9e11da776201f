//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const syncedPods = 300

// serveInitialEvents serves watches that begin with n objects and, if end is set, with the end
// bookmark.
func serveInitialEvents(t *testing.T, secure bool, n int, end bool) endpoint {
	var body bytes.Buffer
	for i := range n {
		fmt.Fprintf(&body, `{"type":"ADDED","object":{"n":%d,"pad":"%s"}}`+"\n", i, strings.Repeat("p", i))
	}
	if end {
		body.WriteString(`{"type":"BOOKMARK","object":{"metadata":{` +
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	}
	return serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "1" || q.Get("sendInitialEvents") != "true" || q.Get("resourceVersionMatch") != "NotOlderThan" {
			t.Errorf("asked for %v", r.URL)
		}
		stream := body.Bytes()
		if r.Header.Get("Accept-Encoding") == "gzip" && r.Header.Get("Authorization") != "" {
			w.Header().Set("Content-Encoding", "gzip")
			stream = flushed(t, body.Bytes())
		}
		w.WriteHeader(http.StatusOK)
		for p := stream; len(p) > 0; p = p[min(len(p), 1000):] {
			io.Copy(w, bytes.NewReader(p[:min(len(p), 1000)]))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
}

// flushed returns a gzip stream up to its flush, without its end.
func flushed(t *testing.T, p []byte) []byte {
	stream := zipped(t, false, string(p))
	return stream[:bytes.LastIndex(stream, syncMarker)+len(syncMarker)]
}

func TestSyncers(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, gzip := range []bool{false, true} {
			t.Run(fmt.Sprintf("tls=%t/gzip=%t", secure, gzip), func(t *testing.T) {
				t.Parallel() // waits for a silent stream
				s, err := newSyncers(serveInitialEvents(t, secure, syncedPods, true), 5, gzip, allPods(syncedPods))
				defer s.close()
				if err == nil {
					err = s.ask()
				}
				if err != nil {
					t.Fatal(err)
				}
				progress := 0
				took, err := s.await(t.Context(), func() error { progress++; return nil })
				if err == nil {
					err = s.check()
				}
				if err != nil || s.compressed() != gzip || progress == 0 || took <= 0 || took > 5*time.Second ||
					s.bytes() < 5*1000 {
					t.Errorf("got %v after %v, compressed %t, %d bytes", err, took, s.compressed(), s.bytes())
				}
			})
		}
	}
}

// TestSyncersFail: a client that does not get everything fails the case with the reason.
func TestSyncersFail(t *testing.T) {
	f := func(name string, e endpoint, gzip bool, patience time.Duration, want string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newSyncers(e, 2, gzip, allPods(syncedPods))
			defer s.close()
			if err == nil {
				err = s.ask()
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = s.await(ctx, func() error { return nil })
			if err == nil {
				err = s.check()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if err := s.check(); err == nil { // also after an error of await
				t.Error("everything has come")
			}
		})
	}
	f("too few", serveInitialEvents(t, false, syncedPods-1, true), false, 30*time.Second, "299 objects came, want 300")
	f("too few, compressed", serveInitialEvents(t, false, syncedPods-1, true), true, 30*time.Second,
		"299 objects came, want 300")
	f("no end", serveInitialEvents(t, false, syncedPods, false), false, 300*time.Millisecond, "0 of 2 clients done")
	f("no end, compressed", serveInitialEvents(t, false, syncedPods, false), true, 30*time.Second,
		"no end bookmark; 300 objects came")
	refuse := func(w http.ResponseWriter, r *http.Request) { http.Error(w, "later", http.StatusTooManyRequests) }
	f("refused", serve(t, false, refuse), false, 30*time.Second, "429 Too Many Requests")
}
