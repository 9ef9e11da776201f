package cachesuite

import (
	"context"
	"math"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
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
	o := listOptions(p, opts)
	o.Watch, o.SendInitialEvents = true, opts.SendInitialEvents
	o.AllowWatchBookmarks = opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify
	if opts.SendInitialEvents != nil {
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	if deadline, ok := ctx.Deadline(); ok {
		o.TimeoutSeconds = new(int64(math.Ceil(time.Until(deadline).Seconds())))
	}
	w := &watcher{events: make(chan watch.Event, buffered)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	stream, err := s.collection(http.MethodGet, p).VersionedParams(o, s.parameters).Watch(w.ctx)
	if err != nil {
		w.cancel()
		return nil, storageError(err, "")
	}
	go w.read(stream)
	return w, nil
}

func (w *watcher) read(stream watch.Interface) {
	defer close(w.events)
	defer w.cancel()
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if v1, ok := event.Object.(*examplev1.Pod); ok {
			pod := new(example.Pod)
			event.Object = pod
			if err := decodePod(v1, pod); err != nil {
				event = watch.Event{Type: watch.Error, Object: &metav1.Status{Message: err.Error()}}
			}
		}
		if w.ctx.Err() != nil { // client-go may send that as an event
			return
		}
		select {
		case w.events <- event:
		case <-w.ctx.Done():
			return
		}
	}
}
