package cachesuite

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// buffered is how many events a watcher holds that the suite has not read. TestDelayedWatchDelivery
// reads after it has stopped the watch.
const buffered = 100

// watcher is an open watch. A goroutine reads its events until the stream ends or it is stopped.
type watcher struct {
	events chan watch.Event // closed by read
	ctx    context.Context
	cancel context.CancelFunc
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }
func (w *watcher) Stop()                          { w.cancel() }

// Watch watches key. A key that is no prefix and names no object stands for the collection.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	p, err := s.parseKey(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, p, opts)
}

func (s *store) watch(ctx context.Context, p place, opts storage.ListOptions) (*watcher, error) {
	q := query(p, opts)
	q.Set("watch", "true")
	if opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify {
		q.Set("allowWatchBookmarks", "true")
	}
	if opts.SendInitialEvents != nil {
		q.Set("sendInitialEvents", strconv.FormatBool(*opts.SendInitialEvents))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	if deadline, ok := ctx.Deadline(); ok {
		q.Set("timeoutSeconds", strconv.Itoa(int(math.Ceil(time.Until(deadline).Seconds()))))
	}
	w := &watcher{events: make(chan watch.Event, buffered)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	resp, err := s.send(w.ctx, http.MethodGet, s.collection(p)+"?"+q.Encode(), nil, "")
	if err != nil {
		w.cancel()
		return nil, err
	}
	go w.read(resp.Body)
	return w, nil
}

func (w *watcher) read(body io.ReadCloser) {
	defer close(w.events)
	defer w.cancel()
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var raw struct {
			Type   watch.EventType
			Object json.RawMessage
		}
		if d.Decode(&raw) != nil {
			return
		}
		event := watch.Event{Type: raw.Type}
		var err error
		if raw.Type == watch.Error {
			status := new(metav1.Status)
			event.Object, err = status, json.Unmarshal(raw.Object, status)
		} else {
			pod := new(example.Pod)
			event.Object, err = pod, decodePod(raw.Object, pod)
		}
		if err != nil {
			event = watch.Event{Type: watch.Error, Object: &metav1.Status{Message: err.Error()}}
		}
		select {
		case w.events <- event:
		case <-w.ctx.Done():
			return
		}
	}
}
