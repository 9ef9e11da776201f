package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// TestWriter: the writes of one object come in the order of their numbers, without a gap. Writers
// are ahead of the watchers by no more than the limit.
func TestWriter(t *testing.T) { synctest.Test(t, testWriter) }

func testWriter(t *testing.T) {
	coll := &Collection{Namespace: "bench", Objects: 6}
	var mu sync.Mutex
	last := make(map[string]uint64)
	count := 0
	pipes := proxytest.NewPipes()
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
		if name := objectName(int(seq % 6)); name != object.Metadata.Name || r.URL.Path != coll.Path()+"/"+name {
			t.Errorf("write %d went to %s %s", seq, r.URL.Path, object.Metadata.Name)
		}
		if before, ok := last[object.Metadata.Name]; ok && seq != before+6 {
			t.Errorf("got write %d after %d", seq, before)
		}
		last[object.Metadata.Name] = seq
		count++
	})}
	go server.Serve(pipes)
	defer server.Close()
	transport := &http.Transport{DialContext: pipes.Dial}
	defer transport.CloseIdleConnections()
	w := &Writer{Client: &http.Client{Transport: transport}, server: away, coll: coll, workers: 1, Behind: 5, Turn: coll.Objects}
	w.Ledger = NewLedger(6)
	// The one watcher reads nothing.
	f := &Fleet{reader: &reader{}, coll: coll, fan: []int64{1, 1, 1, 1, 1, 1}, Watchers: make([]*Watch, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := w.Run(ctx, f, 0); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if count != 5+1 || w.Acked.Load() != uint64(count) {
		t.Errorf("got %d writes, %d acknowledged; the watcher may be 5 behind before the next", count, w.Acked.Load())
	}
	w.workers = 4
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	before := count
	if err := w.Run(ctx, f, 100); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if got := count - before; got < 30 || got > 31 {
		t.Errorf("got %d writes in 300 ms at 100/s: pace does not wait for watchers", got)
	}
}
