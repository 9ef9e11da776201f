package load

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStreamsShare: a fleet over HTTP/2 has as many connections as it needs, also when it grows in
// between.
func TestStreamsShare(t *testing.T) {
	s, e := newScriptedServer(t, true)
	var clients sync.Map // by address
	serve := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			clients.Store(r.RemoteAddr+" "+r.Proto, true)
		}
		serve.ServeHTTP(w, r)
	})
	f, err := NewFleet(e, s.coll, []Filter{Everything}, NewAcks())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.H2 = &Multiplex{Streams: 10, Flow: LargeSteps}
	for _, n := range []int{1, 4, 25} {
		if err := f.Grow(t.Context(), n, []uint64{0, 1, 2, 3}); err != nil || len(f.Watchers) != n {
			t.Fatalf("%d of %d watchers, %v", len(f.Watchers), n, err)
		}
	}
	count := 0
	clients.Range(func(key, _ any) bool {
		if count++; !strings.HasSuffix(key.(string), " HTTP/2.0") {
			t.Errorf("a watch came from %s", key)
		}
		return true
	})
	if count != 3 {
		t.Errorf("%d connections, want 3", count)
	}
}

// TestStreamsDeaf: a stream that does not read gets no more than its window, and the others go on.
// Later it gets the rest.
func TestStreamsDeaf(t *testing.T) {
	s, f, a := startFleet(t, h2, 3, []Filter{Everything})
	seqs := []uint64{0, 1, 2, 3}
	deaf, err := f.AddDeaf(t.Context(), 1, seqs)
	if err != nil || len(deaf) != 1 {
		t.Fatalf("%d streams, %v", len(deaf), err)
	}
	pad := strings.Repeat("p", 10_000)
	const events = 40 // six windows
	for i := range uint64(events) {
		seq := 4 * (i + 1)
		f.Expect(0)
		a.Begin(seq)
		a.done(seq)
		s.say(-1, string(modified(seq, pad))+"\n")
	}
	if err := f.Drain(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	seqs[0] = 4 * events
	if f, n, err := deaf[0].fate(seqs); f != Silent || n > 7*4+1+2+3 || err != nil {
		t.Errorf("a deaf stream: %v, its numbers add up to %d, %v", f, n, err)
	}
	if count, err := deaf.Wake(t.Context(), seqs); count[CaughtUp] != 1 || err != nil {
		t.Errorf("when it reads on: %v, %v", count, err)
	}
	if got := f.Read().Deliveries; got != 3*events {
		t.Errorf("%d deliveries count, want %d", got, 3*events)
	}
}
