//go:build linux

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// A scriptedServer lists a collection and serves watches, to each of which it says what the test tells it to.
type scriptedServer struct {
	*httptest.Server
	coll *collection

	mu      sync.Mutex
	streams []chan string // never closed; a stream ends when it gets ""
	queries []string
}

func newScriptedServer(t *testing.T, secure bool) (*scriptedServer, endpoint) {
	s := &scriptedServer{coll: &collection{namespace: "bench", objects: 4}}
	s.Server = httptest.NewUnstartedServer(s)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	e := endpoint{addr: netip.MustParseAddrPort(s.Listener.Addr().String())}
	if secure {
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		e.tls = tlsConfig(e.addr, roots)
	}
	return s, e
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		list := map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": make([]struct{}, s.coll.objects)}
		json.NewEncoder(w).Encode(list)
		return
	}
	if rv := r.URL.Query().Get("resourceVersion"); rv != "7" {
		http.Error(w, "watch from "+rv, http.StatusGone)
		return
	}
	stream := make(chan string, 100)
	s.mu.Lock()
	s.streams = append(s.streams, stream)
	s.queries = append(s.queries, r.URL.RawQuery)
	s.mu.Unlock()
	for line := ""; ; {
		fmt.Fprint(w, line)
		w.(http.Flusher).Flush()
		select {
		case line = <-stream:
		case <-r.Context().Done():
			return
		}
		if line == "" {
			return
		}
	}
}

// say sends a line to the i-th watch accepted, or to all if i is negative.
func (s *scriptedServer) say(i int, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, stream := range s.streams {
		if i < 0 || i == j {
			stream <- line
		}
	}
}

// startFleet connects n watchers to a scripted server. Objects have just been created.
func startFleet(t *testing.T, secure bool, n int, filters []filter) (*scriptedServer, *fleet, *acks) {
	t.Helper()
	s, e := newScriptedServer(t, secure)
	a := newAcks()
	f, err := newFleet(e, s.coll, filters, a, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	if err := f.grow(t.Context(), n, []uint64{0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	return s, f, a
}

func TestFleetReceives(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			s, f, a := startFleet(t, secure, 20, []filter{everything})
			s.say(-1, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"9"}}}`+"\n")
			for seq := uint64(4); seq < 104; seq++ {
				f.expect(int(seq % 4))
				a.begin(seq)
				a.done(seq)
				line := string(modified(seq, strings.Repeat("p", int(seq)*100))) + "\n"
				s.say(-1, line[:seq]) // in two writes
				s.say(-1, line[seq:])
			}
			if err := f.drain(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
			got := f.read()
			if got.deliveries != 2000 || got.bookmarks != 20 || got.latency.Count != 2000 || got.early != 0 {
				t.Errorf("got %d deliveries, %d bookmarks, %d latencies, %d early want 2000, 20, 2000, 0",
					got.deliveries, got.bookmarks, got.latency.Count, got.early)
			}
		})
	}
}

// TestFleetFails: a stream that is not exactly what a watcher must see fails the run, and says why.
func TestFleetFails(t *testing.T) {
	f := func(name, want string, lines ...string) {
		t.Run(name, func(t *testing.T) {
			s, f, _ := startFleet(t, false, 3, []filter{{"", func(o int) bool { return o != 3 }}})
			f.expect(0)
			f.expect(0)
			for _, line := range lines {
				s.say(1, line)
			}
			err := f.drain(t.Context(), 2*time.Second) // returns at once when a watcher is lost
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v want an error with %q", err, want)
			}
		})
	}
	event := func(seq uint64) string { return string(modified(seq, "")) + "\n" }
	f("gap", "got write 8 after 0, want 4", event(8))
	f("twice", "got write 4 after 4, want 8", event(4), event(4))
	f("backwards", "got write 0 after 0", event(0))
	f("not asked for", "which the filter", event(7))
	f("ended", "the server ended the stream", event(4), "")
	f("error", "unexpected event", `{"type":"ERROR","object":{"code":410}}`+"\n")
	f("garbage", "invalid character", "garbage\n")
	f("missing", "5 deliveries still missing", event(4))
}

func TestFleetShrinks(t *testing.T) {
	s, f, _ := startFleet(t, true, 10, []filter{everything})
	f.shrink(4)
	f.expect(1)
	s.say(-1, string(modified(5, ""))+"\n")
	if err := f.drain(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := f.read().deliveries; got != 4 {
		t.Errorf("got %d deliveries want 4", got)
	}
}

func TestConnectRefused(t *testing.T) {
	s, e := newScriptedServer(t, false)
	if _, _, err := (watchRequest{endpoint: e, path: s.coll.path(), version: "6", filter: everything}).open(); err == nil || !strings.Contains(err.Error(), "410 Gone") {
		t.Errorf("watch from an old resourceVersion: got %v want 410 Gone", err)
	}
	away := endpoint{addr: netip.MustParseAddrPort("192.0.2.1:443")}
	if _, _, err := (watchRequest{endpoint: away, path: s.coll.path(), version: "7", filter: everything}).open(); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("watch elsewhere: got %v want a refusal", err)
	}
	if _, err := loopback("https://192.0.2.1:443"); err == nil {
		t.Error("cluster elsewhere: no refusal")
	}
}

// TestWriter: writes of one object come in order, each with the number after the one before, and pass the watchers by
// no more than they may be behind.
func TestWriter(t *testing.T) {
	coll := &collection{namespace: "bench", objects: 6}
	var mu sync.Mutex
	last := make(map[string]uint64)
	count := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var object struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
		json.NewDecoder(r.Body).Decode(&object)
		mu.Lock()
		defer mu.Unlock()
		var seq uint64
		fmt.Sscan(object.Metadata.Annotations[seqAnnotation], &seq)
		if name := coll.name(int(seq % 6)); name != object.Metadata.Name || r.URL.Path != coll.path()+"/"+name {
			t.Errorf("write %d went to %s %s", seq, r.URL.Path, object.Metadata.Name)
		}
		if before, ok := last[object.Metadata.Name]; ok && seq != before+6 {
			t.Errorf("got write %d after %d", seq, before)
		}
		last[object.Metadata.Name] = seq
		count++
	}))
	defer server.Close()
	w := &writer{client: server.Client(), server: server.URL, coll: coll, ledger: newLedger(newAcks(), 6), workers: 4, behind: 5}
	f := &fleet{coll: coll, fan: []int64{1, 1, 1, 1, 1, 1}, watchers: make([]*watcher, 1)} // whose one watcher reads nothing
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := w.run(ctx, f, 0); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if count == 0 || count > 5+4 || w.acked.Load() != uint64(count) {
		t.Errorf("got %d writes, %d acknowledged, past a watcher that may be 5 behind; 4 can be in flight", count, w.acked.Load())
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	before := count
	if err := w.run(ctx, f, 100); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if got := count - before; got < 5 || got > 31 { // a busy machine runs 300 ms late
		t.Errorf("got %d writes in 300 ms at 100/s: pace does not wait for watchers", got)
	}
}
