//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A writer updates the objects of a collection, at kube-apiserver itself, over one HTTP/2
// connection. Each of its workers has its own objects and writes one at a time. The writes of one
// object are therefore in the order of their numbers.
type writer struct {
	client *http.Client
	server string // URL of kube-apiserver
	token  string
	coll   *collection
	*ledger

	workers int // most writes in flight
	behind  int // writes that watchers may be behind before the next unpaced write; 0 is no limit
	turn    int // number of objects that are written in turn, from the first; 0 is all

	gate sync.Mutex // held by the worker that waits for the watchers
}

// newWriter returns a writer of objects that do not exist yet.
func newWriter(e endpoint, coll *collection, a *acks, workers, behind int) *writer {
	return &writer{
		client: e.client(), server: e.url(), token: e.token,
		coll: coll, ledger: newLedger(a, coll.objects), workers: min(workers, coll.objects), behind: behind,
	}
}

// create creates the collection. It sizes the payload of ConfigMaps for watch events of eventSize
// bytes.
func (w *writer) create(ctx context.Context, eventSize int, say func(string, ...any)) error {
	coll := w.coll
	if coll.pods() {
		form := func(i int) pod { return newPod(i).on(coll.node(i)).written(uint64(i), 0) }
		return createPods(ctx, w, 0, coll.objects, form, say)
	}
	if err := w.createNamespace(ctx, coll.namespace); err != nil {
		return err
	}
	for object := range coll.objects {
		if _, err := w.send(ctx, "POST", coll.path(), coll.body(object, w.seqs[object])); err != nil {
			return err
		}
		if object > 0 || coll.slices {
			continue
		}
		without, err := w.eventSize(ctx)
		if err != nil {
			return err
		}
		coll.pad = max(coll.pad+eventSize-without, 0)
	}
	return nil
}

// eventSize writes object 0 as it was created, and returns the size of the event in bytes.
func (w *writer) eventSize(ctx context.Context) (int, error) {
	// The answer to an update is the object of the events.
	answer, err := w.send(ctx, "PUT", w.coll.objectPath(0), w.coll.body(0, 0))
	return len(bytes.TrimSpace(answer)) + len(`{"type":"MODIFIED","object":}`) + len("\n"), err
}

func (w *writer) createNamespace(ctx context.Context, name string) error {
	body := fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":%q}}`, name)
	_, err := w.send(ctx, "POST", "/api/v1/namespaces", body)
	return err
}

// send sends one request and returns the body of a 2xx answer. A write is acknowledged by the head
// of the answer; onAck, if any, is called then.
func (w *writer) send(ctx context.Context, method, path, body string, onAck ...func()) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", ownName)
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		for _, f := range onAck {
			f()
		}
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, answer)
	}
	return answer, nil
}

// run updates objects in turn until ctx ends. It keeps to rate updates a second. With a rate of 0
// it is as fast as the server answers and the watchers of f keep up. It returns after the answer to
// every write. The first failed write stops it.
func (w *writer) run(ctx context.Context, f *fleet, rate float64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timetable := measure.Pace{Start: time.Now(), Rate: rate}
	var wg sync.WaitGroup
	for k := range min(w.workers, w.turns()) {
		wg.Go(func() {
			if err := w.work(ctx, f, timetable, k); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// work is worker k of run. It does operations k, k+workers, k+2·workers … on objects k, k+workers,
// k+2·workers …
func (w *writer) work(ctx context.Context, f *fleet, timetable measure.Pace, k int) error {
	object, workers := k, min(w.workers, w.turns())
	for i := uint64(k); ; i += uint64(workers) {
		late, err := timetable.Wait(ctx, i)
		if err == nil && timetable.Rate == 0 {
			err = w.waitFor(ctx, f)
		}
		if err != nil {
			return nil
		}
		w.noteLate(late)
		f.expect(object)
		if err := w.update(object); err != nil {
			return err
		}
		if object += workers; object >= w.turns() {
			object = k
		}
	}
}

func (w *writer) book() *ledger { return w.ledger }

// turns returns the number of objects that are written.
func (w *writer) turns() int {
	if w.turn > 0 {
		return min(w.turn, w.coll.objects)
	}
	return w.coll.objects
}

// allow lets watchers be so many writes behind.
func (w *writer) allow(behind int) { w.behind = behind }

// waitFor waits until the watchers are at most w.behind writes behind, on average. Otherwise
// kube-apiserver would end the watches under more writes than it can deliver.
func (w *writer) waitFor(ctx context.Context, f *fleet) error {
	w.gate.Lock()
	defer w.gate.Unlock()
	for w.behind > 0 && f.err() == nil && f.owed() > int64(w.behind)*int64(len(f.watchers)) {
		if err := sleep(ctx, time.Millisecond/2); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// update makes the next write of an object. The end of the load does not cancel it: after a write
// with an unknown result, the expected number of deliveries would be unknown.
func (w *writer) update(object int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seq := w.seqs[object] + uint64(w.coll.objects)
	w.seqs[object] = seq
	w.acks.begin(seq)
	_, err := w.send(ctx, "PUT", w.coll.objectPath(object), w.coll.body(object, seq), func() { w.done(seq) })
	return err
}
