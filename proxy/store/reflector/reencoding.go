package reflector

import (
	"bytes"
	"context"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// An object that nobody writes keeps its resourceVersion, but not its bytes. Another version of
// kube-apiserver, or the same version with another feature gate, may add a default to the object or
// leave a field out. A watch does not show that. So before the reflector resumes a watch, it checks
// whether upstream still writes the objects of the cache in the same way:
//
//   - It asks which build upstream is (see [upstream.Builds]).
//   - It compares the first page of the collection with the cache, object by object at the same
//     resourceVersion. This shows a feature gate, which does not change the build. If the
//     collection fits into one page, the comparison misses nothing.
//
// If one of these differs, the collection is listed. If any list, requested for whatever reason,
// has an object in other bytes, the cache takes the objects of the list, and its open watches end
// with 410; see fanout, Relists. A list with the same bytes ends nothing.
//
// While several versions answer behind one address, as in an upgrade of the control plane, the cache
// may hold the bytes of either. It is listed for this reason once in refillEvery at most, so the last
// change of an upgrade is noticed within refillEvery plus the length of a watch: 15 minutes.
const (
	// compareEvery is the least time between two comparisons. A watch that breaks all the time must
	// not cost a page each time.
	compareEvery = 10 * time.Second
	// refillEvery is the least time between two lists for this reason.
	refillEvery = 5 * time.Minute
	// compareTimeout is how long the watch waits for the comparison.
	compareTimeout = 5 * time.Second
)

// reencoded reports whether upstream writes objects of the cache differently, or may do so. If
// upstream does not answer, it reports false.
func (r *Reflector) reencoded(ctx context.Context) bool {
	if time.Since(r.compared) < compareEvery || !r.refilled.IsZero() && time.Since(r.refilled) < refillEvery {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	done, err := r.source.turn(ctx)
	if err != nil {
		return false
	}
	defer done()
	different, err := r.compare(ctx)
	if err != nil {
		return false // the watch will show the reason, or the next comparison
	}
	r.compared = time.Now()
	now := r.source.builds.Of(ctx, r.Collection.info)
	if different = different || now.Differs(r.build); different {
		r.refilled = time.Now()
		r.Log.Info("Listing again, upstream is another version or writes objects differently")
		return true
	}
	r.build = r.build.Or(now) // the schema of a new resource is known later than the resource
	r.health.note(func(s *Status) { s.Build = new(r.build) })
	return false
}

// compare reports whether the first page of the collection has objects in other bytes than the
// cache, at the same resourceVersion.
func (r *Reflector) compare(ctx context.Context) (different bool, err error) {
	snapshot := r.Cache.Snapshot()
	_, err = r.Collection.page(ctx, r.Collection.path, upstream.Query("limit", listPage), func(o *framing.Object) error {
		known, ok := snapshot.Get(o.Key)
		if ok && known.ResourceVersion == o.ResourceVersion && !bytes.Equal(known.Bytes(), o.Bytes()) {
			different = true
		}
		return nil
	})
	return different, err
}
