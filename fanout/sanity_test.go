package fanout

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/framing"
)

type rec struct {
	mu  sync.Mutex
	b   strings.Builder
	end Reason
	ok  bool
	c   chan struct{}
}

func (r *rec) Write(b [][]byte) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range b {
		r.b.Write(x)
	}
	return false, nil
}
func (r *rec) Drain() error               { return nil }
func (r *rec) End(e Reason, complete bool) { r.end, r.ok = e, complete; close(r.c) }

func TestSanity(t *testing.T) {
	f := NewFlusher(2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	c := NewCache(Limits{1000, 1 << 20, 100, 1 << 20}, f)
	sc := framing.NewScanner(nil)
	apply := func(typ string, name string, rv int, labels string) {
		ev, err := sc.Event([]byte(fmt.Sprintf(`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"a","resourceVersion":"%d","labels":{%s}},"data":{"x":"y"}}}`+"\n", typ, name, rv, labels)))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(ev, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	c.Replace(nil, 5, time.Now())
	apply("ADDED", "x", 6, `"l":"1"`)
	flt, _ := NewFilter("", nil, nil, nil)
	s, err := c.Subscribe(Request{Filter: flt, Start: FromSnapshot, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := &rec{c: make(chan struct{})}
	f.Start(s, r)
	apply("MODIFIED", "x", 7, `"l":"2"`)
	apply("DELETED", "x", 9, `"l":"2"`)
	time.Sleep(50 * time.Millisecond)
	s.End(Ending{Reason: ShutDown})
	<-r.c
	fmt.Println(r.b.String(), r.end, r.ok)
	cancel()
	<-done
}
