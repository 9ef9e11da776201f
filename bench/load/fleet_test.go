package load

import (
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

// A scriptedServer lists a collection and serves watches. The test writes the lines of each watch.
type scriptedServer struct {
	*httptest.Server
	coll *Collection

	mu      sync.Mutex
	streams []chan string // never closed; a stream ends when it gets ""
	queries []string
}

func newScriptedServer(t *testing.T, secure bool) (*scriptedServer, Endpoint) {
	s := &scriptedServer{coll: &Collection{Namespace: "bench", Objects: 4}}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = secure // HTTP/1.1 is served too
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	e := Endpoint{Addr: netip.MustParseAddrPort(s.Listener.Addr().String())}
	if secure {
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		e.TLS = TlsConfig(e.Addr.Addr(), roots)
	}
	return s, e
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		list := map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": make([]struct{}, s.coll.Objects)}
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

// An access is how a fleet of a test reaches its server.
type access string

const (
	plain  access = "plain"
	secure access = "tls"
	h2     access = "h2"
)

// startFleet connects n watchers to a scripted server. Objects have just been created.
func startFleet(t *testing.T, by access, n int, filters []Filter) (*scriptedServer, *Fleet, *Acks) {
	t.Helper()
	s, e := newScriptedServer(t, by != plain)
	a := NewAcks()
	f, err := NewFleet(e, s.coll, filters, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if by == h2 {
		f.H2 = &Multiplex{Streams: 6, Flow: SmallWindows}
	}
	if err := f.Grow(t.Context(), n, []uint64{0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	return s, f, a
}

func TestFleetReceives(t *testing.T) {
	for _, by := range []access{plain, secure, h2} {
		t.Run(string(by), func(t *testing.T) {
			s, f, a := startFleet(t, by, 20, []Filter{Everything})
			s.say(-1, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"9"}}}`+"\n")
			for seq := uint64(4); seq < 104; seq++ {
				f.Expect(int(seq % 4))
				a.Begin(seq)
				a.done(seq)
				line := string(modified(seq, strings.Repeat("p", int(seq)*100))) + "\n"
				s.say(-1, line[:seq]) // in two writes
				s.say(-1, line[seq:])
			}
			if err := f.Drain(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
			got := f.Read()
			if got.Deliveries != 2000 || got.Latency.Count != 2000 || got.Early != 0 {
				t.Errorf("got %d deliveries, %d latencies, %d early want 2000, 2000, 0", got.Deliveries, got.Latency.Count, got.Early)
			}
		})
	}
}

// TestFleetFails: a wrong stream fails the run with its reason.
func TestFleetFails(t *testing.T) {
	f := func(name, want string, lines ...string) {
		for _, by := range []access{plain, h2} {
			t.Run(name+"/"+string(by), func(t *testing.T) {
				s, f, _ := startFleet(t, by, 3, []Filter{{"", func(o int) bool { return o != 3 }}})
				f.Expect(0)
				f.Expect(0)
				for _, line := range lines {
					s.say(1, line)
				}
				err := f.Drain(t.Context(), 2*time.Second) // returns at once when a watcher is lost
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v want an error with %q", err, want)
				}
			})
		}
	}
	event := func(seq uint64) string { return string(modified(seq, "")) + "\n" }
	f("gap", "got write 8 after 0, want 4", event(8))
	f("twice", "got write 4 after 4, want 8", event(4), event(4))
	f("backwards", "got write 0 after 0", event(0))
	f("not asked for", "which the filter", event(7))
	f("ended", "the server ended the stream", event(4), "")
	f("error", "unexpected event", `{"type":"ERROR","object":{"code":410}}`+"\n")
	f("garbage", "unexpected event", "garbage\n")
	f("missing", "5 deliveries still missing", event(4))
}

func TestFleetShrinks(t *testing.T) {
	for _, by := range []access{secure, h2} {
		t.Run(string(by), func(t *testing.T) {
			s, f, _ := startFleet(t, by, 10, []Filter{Everything})
			f.Shrink(4)
			f.Expect(1)
			s.say(-1, string(modified(5, ""))+"\n")
			if err := f.Drain(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
			if got := f.Read().Deliveries; got != 4 {
				t.Errorf("got %d deliveries want 4", got)
			}
		})
	}
}

// away is a server that is not on this machine.
var away = Endpoint{Addr: netip.MustParseAddrPort("192.0.2.1:443")}

func TestConnectRefused(t *testing.T) {
	s, e := newScriptedServer(t, false)
	old := watchRequest{endpoint: e, path: s.coll.Path(), version: "6", filter: Everything}
	if _, _, err := old.open(); err == nil || !strings.Contains(err.Error(), "410 Gone") {
		t.Errorf("watch from an old resourceVersion: got %v want 410 Gone", err)
	}
	elsewhere := watchRequest{endpoint: away, path: s.coll.Path(), version: "7", filter: Everything}
	if _, _, err := elsewhere.open(); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("watch elsewhere: got %v want a refusal", err)
	}
	if _, err := Loopback("https://192.0.2.1:443"); err == nil {
		t.Error("cluster elsewhere: no refusal")
	}
}
