package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Writer updates the objects of a collection, at kube-apiserver itself, over one HTTP/2
// connection. Each of its workers has its own objects and writes one at a time. The writes of one
// object are therefore in the order of their numbers.
type Writer struct {
	Client *http.Client
	server Endpoint // kube-apiserver
	coll   *Collection
	*Ledger

	workers int // most writes in flight
	Behind  int // writes that watchers may be behind before the next unpaced write; 0 is no limit
	Turn    int // number of objects that are written in turn, from the first

	gate sync.Mutex // held by the worker that waits for the watchers
}

// NewWriter returns a writer of objects that do not exist yet.
func NewWriter(e Endpoint, coll *Collection, workers, behind int) *Writer {
	return &Writer{
		Client: e.client(), server: e, coll: coll, Ledger: NewLedger(coll.Objects),
		workers: min(workers, coll.Objects), Behind: behind, Turn: coll.Objects,
	}
}

// Create creates the collection. It sizes the payload of ConfigMaps for watch events of eventSize
// bytes.
func (w *Writer) Create(ctx context.Context, eventSize int, say func(string, ...any)) error {
	coll := w.coll
	if coll.pods() {
		form := func(i int) Pod { return NewPod(i).On(coll.node(i)).written(uint64(i), 0) }
		return CreatePods(ctx, w, 0, coll.Objects, form, say)
	}
	if err := w.CreateNamespace(ctx, coll.Namespace); err != nil {
		return err
	}
	for object := range coll.Objects {
		if _, err := w.Send(ctx, "POST", coll.Path(), coll.body(object, w.Seqs[object])); err != nil {
			return err
		}
		if object > 0 {
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
func (w *Writer) eventSize(ctx context.Context) (int, error) {
	// The answer to an update is the object of the events.
	answer, err := w.Send(ctx, "PUT", w.coll.ObjectPath(0), w.coll.body(0, 0))
	return len(bytes.TrimSpace(answer)) + len(`{"type":"MODIFIED","object":}`) + len("\n"), err
}

func (w *Writer) CreateNamespace(ctx context.Context, name string) error {
	body := fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":%q}}`, name)
	_, err := w.Send(ctx, "POST", "/api/v1/namespaces", body)
	return err
}

// Allow lets a user do what a cluster role says.
func (w *Writer) Allow(ctx context.Context, user, role string) error {
	_, err := w.Send(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, user, role, user))
	return err
}

// Send sends one request and returns the body of a 2xx answer. A write is acknowledged by the head
// of the answer; onAck, if any, is called then.
func (w *Writer) Send(ctx context.Context, method, path, body string, onAck ...func()) ([]byte, error) {
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {Name}}
	return w.server.send(ctx, w.Client, method, path, body, header, onAck...)
}

// Run updates objects in turn until ctx ends. It keeps to rate updates a second. With a rate of 0
// it is as fast as the server answers and the watchers of f keep up; f may be nil, for none, at any other
// rate. It returns after the answer to every write. The first failed write stops it.
func (w *Writer) Run(ctx context.Context, f *Fleet, rate float64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timetable := measure.Pace{Start: time.Now(), Rate: rate}
	var wg sync.WaitGroup
	for k := range min(w.workers, w.Turn) {
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
func (w *Writer) work(ctx context.Context, f *Fleet, timetable measure.Pace, k int) error {
	object, workers := k, min(w.workers, w.Turn)
	for i := uint64(k); ; i += uint64(workers) {
		late, err := timetable.Wait(ctx, i)
		if err == nil && timetable.Rate == 0 {
			err = w.waitFor(ctx, f)
		}
		if err != nil {
			return nil
		}
		w.Late.Record(late)
		if f != nil {
			f.Expect(object)
		}
		if err := w.Update(object); err != nil {
			return err
		}
		if object += workers; object >= w.Turn {
			object = k
		}
	}
}

// waitFor waits until the watchers are at most w.behind writes behind, on average. Otherwise
// kube-apiserver would end the watches under more writes than it can deliver.
func (w *Writer) waitFor(ctx context.Context, f *Fleet) error {
	w.gate.Lock()
	defer w.gate.Unlock()
	for w.Behind > 0 && f.Err() == nil && f.owed() > int64(w.Behind)*int64(len(f.Watchers)) {
		if err := Sleep(ctx, time.Millisecond/2); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Update makes the next write of an object. The end of the load does not cancel it: after a write
// with an unknown result, the expected number of deliveries would be unknown.
func (w *Writer) Update(object int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seq := w.Seqs[object] + uint64(w.coll.Objects)
	w.Seqs[object] = seq
	w.Acks.Begin(seq)
	_, err := w.Send(ctx, "PUT", w.coll.ObjectPath(object), w.coll.body(object, seq), func() { w.Done(seq) })
	return err
}

// A Rate is a number of writes per second; 0 is as fast as possible.
type Rate float64

const Unpaced = Rate(0)

func (r Rate) String() string {
	if r == Unpaced {
		return "max"
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64)
}

func ParseRate(s string) (Rate, error) {
	if s == Unpaced.String() {
		return Unpaced, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !(f > 0 && f <= 1e6) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("rate %q: want max or a number up to 1e6", s)
	}
	return Rate(f), nil
}
