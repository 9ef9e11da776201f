package fanout_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// A queue that is full holds its subscription up until somebody takes what waits. Nothing is lost.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		const n = 200
		for i := range n {
			w.put(thing{namespace: "a", name: fmt.Sprintf("x%03d", i), data: strings.Repeat("d", 1000)})
		}
		wakes := 0
		q := &fanout.Queue{Wake: func() { wakes++ }, Most: 10_000}
		sub := w.subscribe(everything(t), fanout.Request{Start: fanout.FromSnapshot})
		w.flusher.Start(sub, q)
		var all, taken []fanout.Queued
		for rounds := 0; len(all) < n; rounds++ {
			synctest.Wait()
			before := wakes
			var ended fanout.Reason
			if taken, ended = q.Take(taken[:0]); len(taken) == 0 || ended != "" || before == 0 {
				t.Fatalf("%d events of %d after %d rounds, ended %q, %d wakes", len(all), n, rounds, ended, before)
			}
			if all = append(all, taken...); rounds == 0 && len(all) == n {
				t.Error("all came at once")
			}
		}
		scanner := framing.NewScanner(framing.JSON, nil)
		for i, e := range all[:n] {
			ev, err := scanner.Event([]byte(string(e.First) + string(e.Second)))
			if err != nil || ev.Object.Key != fmt.Sprintf("a/x%03d", i) || e.Len() != len(e.First)+len(e.Second) {
				t.Fatalf("event %d: %v, %v", i, ev, err)
			}
		}
		sub.End(fanout.Ending{Reason: fanout.Gone})
		synctest.Wait()
		if taken, ended := q.Take(nil); len(taken) > 0 || ended != fanout.Gone {
			t.Errorf("%d events after the end %q", len(taken), ended)
		}
		if _, err := q.Write([][]byte{[]byte("no batch")}); err == nil {
			t.Error("took what is no batch")
		}
	})
}
