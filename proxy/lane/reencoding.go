package lane

import (
	"bytes"
	"context"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// An object that nobody writes keeps its resourceVersion, but not its bytes: another version of
// kube-apiserver, or the same with another feature gate, may add a default to it or leave a field
// out. A watch never tells. So before the reflector resumes a watch, it looks whether upstream
// still writes what the cache holds:
//
//   - whether it says to be another build (see builds);
//   - whether the first page of the collection has other bytes at the same resourceVersions. This
//     is what a feature gate shows, of which no build tells. Of a collection that fits into a page
//     nothing is missed.
//
// If so, the collection is listed. Where the list has an object in other bytes, at whatever
// occasion it was asked for, the cache takes the list's and its open watches end with 410: see
// fanout, Relists. A list with the same bytes ends nothing.
//
// Watches are resumed when they break, as by a restart of kube-apiserver, and otherwise after 5 to
// 10 minutes. While several versions answer behind one address, as in an upgrade of the control
// plane, the cache may hold what either wrote; it is listed for this reason once in refillEvery at
// most, so the last change of an upgrade is noticed within refillEvery and the length of a watch,
// 15 minutes.
const (
	// compareEvery is how often upstream is asked at most: a watch that breaks all the time must
	// not cost a page each time.
	compareEvery = 10 * time.Second
	// refillEvery is how often the collection is listed at most because upstream writes it
	// differently.
	refillEvery = 5 * time.Minute
	// compareTimeout is how long the watch waits for that.
	compareTimeout = 5 * time.Second
)

// reencoded reports whether upstream writes objects differently that the cache holds, or may do so.
// What it does not answer is not different.
func (r *reflector) reencoded(ctx context.Context) bool {
	if time.Since(r.compared) < compareEvery || !r.refilled.IsZero() && time.Since(r.refilled) < refillEvery {
		return false
	}
	l := r.lane
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	given, err := l.lanes.turns.take(ctx)
	if err != nil {
		return false
	}
	defer given()
	different, err := r.compare(ctx)
	if err != nil {
		return false // and the watch will tell, or the next comparison
	}
	r.compared = time.Now()
	if now := l.lanes.builds.Of(ctx, l.GVR.GroupVersion()); now.Differs(r.build) {
		different = true
	}
	if different {
		r.refilled = time.Now()
		l.Log.Info("Listing anew, upstream is another version or writes objects differently")
	}
	return different
}

// compare reports whether the first page of the collection has objects in other bytes than the
// cache.
func (r *reflector) compare(ctx context.Context) (different bool, err error) {
	l := r.lane
	resp, err := l.list(ctx, upstream.Query("limit", listPage))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	snapshot := l.Cache.Snapshot()
	_, err = readList(l.Encoding, resp.Body, func(raw []byte) error {
		o, err := r.scanner.Item(raw, r.typed)
		if err != nil {
			return err
		}
		known, ok := snapshot.Get(o.Key)
		different = different || ok && unlike(known, o)
		return nil
	})
	return different, err
}

// unlike reports whether two objects are of one version and in other bytes.
func unlike(a, b *framing.Object) bool {
	return a.ResourceVersion == b.ResourceVersion && !bytes.Equal(a.Bytes(), b.Bytes())
}
