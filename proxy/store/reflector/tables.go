package reflector

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// A collection in Tables is watched and never listed: its cache keeps events only. Its first watch
// begins where the first client wants to begin. That is the resourceVersion of the client's own
// list, so upstream nearly always still has the events after it. If not, upstream says so with the
// first event, and the watch begins at the current resourceVersion.
//
// The watch is resumed as any other. If the history after the cache's resourceVersion is gone, no
// list can show what happened, because the differences would have no rows. Then all clients' watches
// end, as kube-apiserver's own do when its cache begins anew. A client that resumes is sent what is
// missing, or learns that it is too late.

// Selection is a part of a resource. The zero Selection is all of it.
type Selection struct{ Namespace, Labels, Fields string }

// query returns the selectors as parameters of a request.
func (s Selection) query() string {
	var pairs []string
	if s.Labels != "" {
		pairs = append(pairs, "labelSelector", s.Labels)
	}
	if s.Fields != "" {
		pairs = append(pairs, "fieldSelector", s.Fields)
	}
	return upstream.Query(pairs...)
}

// tableWatchFactor makes watches in Tables as long as kube-apiserver lets clients' watches last by
// default. If upstream sends no bookmarks, as for events, the end of a watch is the end of the
// clients' watches: etcd has compacted the resourceVersion of the last event.
const tableWatchFactor = 6

// followTables watches a collection in Tables. nil means that the watch came to a proper end.
func (r *Reflector) followTables(ctx context.Context) error {
	if r.filled && !r.relist {
		return r.resume(ctx)
	}
	now, err := r.Collection.CurrentVersion(ctx, answerTimeout)
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Collection, err)
	}
	if r.filled {
		r.restart(now)
		return r.watch(ctx, now)
	}
	if from := r.From(); from > 0 && from < now {
		if err := r.beginTables(ctx, from); r.filled || !Expired(err) {
			return err
		}
	}
	return r.beginTables(ctx, now)
}

// beginTables watches from resourceVersion rv for the first time.
func (r *Reflector) beginTables(ctx context.Context, rv uint64) error {
	r.began = time.Now()
	return r.watchFirst(ctx, nil, rv, func() { r.Filling.End(r.began) })
}

// restart makes the cache begin again at resourceVersion now, and ends all clients' watches. If
// upstream went back in time, clients get 410, because they could not resume.
func (r *Reflector) restart(now uint64) {
	before, ending := r.Cache.Progress(), fanout.Ending{Reason: fanout.Expired}
	if now < before {
		r.metrics.resets.Inc()
		ending = fanout.Ending{
			Reason: fanout.Backwards,
			Last:   apistatus.ErrorFrame(r.Collection.Encoding, apistatus.Expired(before, now)),
		}
	}
	r.Log.Warn("Began again, the events in between are gone", "resourceVersion", now, "reason", ending.Reason)
	r.metrics.relists.Inc()
	r.reset(nil, now, ending)
	r.relist = false
}

// setColumns notes the column definitions of an event. If they have changed, as when kube-apiserver
// is another version, the clients' watches end, as at a restart of kube-apiserver. Those who come
// back get the new ones.
func (r *Reflector) setColumns(columns framing.Columns) {
	if columns.Known() && !r.Cache.SetColumns(columns) {
		r.Log.Info("Ended watches, the columns of the Tables have changed")
		r.Cache.ResetColumns(columns, r.Cache.Progress(), fanout.Ending{Reason: fanout.Redefined})
	}
}
