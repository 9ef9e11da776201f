//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// TestWriter: the writes of one object come in the order of their numbers, without a gap. Writers
// are ahead of the watchers by no more than the limit.
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
		if name := objectName(int(seq % 6)); name != object.Metadata.Name || r.URL.Path != coll.path()+"/"+name {
			t.Errorf("write %d went to %s %s", seq, r.URL.Path, object.Metadata.Name)
		}
		if before, ok := last[object.Metadata.Name]; ok && seq != before+6 {
			t.Errorf("got write %d after %d", seq, before)
		}
		last[object.Metadata.Name] = seq
		count++
	}))
	defer server.Close()
	w := &writer{client: server.Client(), server: server.URL, coll: coll, workers: 4, behind: 5}
	w.ledger = newLedger(newAcks(), 6)
	// The one watcher reads nothing.
	f := &fleet{coll: coll, fan: []int64{1, 1, 1, 1, 1, 1}, watchers: make([]*watch, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := w.run(ctx, f, 0); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	if count == 0 || count > 5+4 || w.acked.Load() != uint64(count) {
		t.Errorf("got %d writes, %d acknowledged; the watcher may be 5 behind, and 4 may be in flight",
			count, w.acked.Load())
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	before, began := count, time.Now()
	if err := w.run(ctx, f, 100); err != nil && err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	took := time.Since(began) // a busy machine runs 300 ms late, and longer
	if got := count - before; got < 5 || got > int(took.Seconds()*100)+1 {
		t.Errorf("got %d writes in %v at 100/s: pace does not wait for watchers", got, took)
	}
}
