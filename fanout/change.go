package fanout

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/watchfan/watchfan/framing"
)

// Event is one change of the collection, as the history keeps it. It is
// immutable but for the frame that it makes on first demand.
type change struct {
	// Type is what happened to the object.
	Type framing.EventType
	// PrevUnknown is true where a change is known only from a replay that began
	// after the version before.
	PrevUnknown bool
	recipients  recipients
	// Object is the version that the change made; for Deleted the last one, with the
	// deletion's resourceVersion.
	Object *framing.Object
	// Prev is the version before; nil if there was none or if it is not known.
	Prev *framing.Object
	// ResourceVersion is where the change stands in the history: it is sent to clients that know
	// everything before it. It is the object's, and for what a relist takes away one more than
	// sentVersion; see the package comment, Relists.
	ResourceVersion uint64
	// Received is when the change arrived; 0 for changes that were replayed.
	Received MonotonicTime

	left atomic.Pointer[framing.Frame]
}

// recipients is which clients an event is for. A relist sends a change as two events, and each
// client gets one at most.
type recipients uint8

const (
	everyone recipients = iota
	leaving             // those whose filters selected the version before, and not this one
	staying             // those whose filters select this one
)

// frameFor returns what a client with filter f gets of the event, if anything: the mapping
// of kube-apiserver (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go,
// convertToWatchEvent).
//
//	matched before  matches now
//	no              yes          ADDED     new version
//	yes             yes          MODIFIED  new version
//	yes             no           DELETED   version before, with this resourceVersion
//	yes             deleted      DELETED   last version, as upstream sent it
//	no              no           nothing
func (e *change) frameFor(f *Filter) (framing.Frame, bool) {
	cur := e.Type != framing.Deleted && f.Match(e.Object)
	old := e.Prev != nil && f.Match(e.Prev)
	if e.PrevUnknown && (e.Type == framing.Deleted || f.fixed) {
		// A deletion carries the version before; scope and name never change.
		old = f.Match(e.Object)
	}
	switch {
	case e.recipients == leaving && cur, e.recipients == staying && !cur:
		return framing.Frame{}, false
	case cur && old:
		return e.Object.Frame(framing.Modified), true
	case cur:
		return e.Object.Frame(framing.Added), true
	case old && e.Type == framing.Deleted:
		return e.Object.Frame(framing.Deleted), true
	case old:
		return e.leftFrame(), true
	}
	return framing.Frame{}, false
}

// leftFrame is made once, whoever asks first; should two ask at once, one of the two equal
// frames is kept.
func (e *change) leftFrame() framing.Frame {
	if f := e.left.Load(); f != nil {
		return *f
	}
	f := e.Prev.Left(e.sentVersion())
	e.left.CompareAndSwap(nil, &f)
	return f
}

// sentVersion is the resourceVersion that clients get with the event.
func (e *change) sentVersion() uint64 {
	if e.recipients == leaving {
		return e.ResourceVersion - 1
	}
	return e.Object.ResourceVersion
}

// mayLeave reports whether there may be a filter that selected the version before and does not
// select this one.
func (e *change) mayLeave() bool {
	return !maps.Equal(e.Prev.Labels, e.Object.Labels) || !slices.Equal(e.Prev.Fields, e.Object.Fields)
}

// unknown reports whether what selectors' clients get of the event depends on a version that is not
// known.
func (e *change) unresolved() bool { return e.PrevUnknown && e.Type != framing.Deleted }

// noteUnresolved notes an unknown event, later than those that are noted: see history.undecided.
func (e *change) noteUnresolved(last map[string]uint64) {
	last[""] = e.ResourceVersion
	last[e.Object.Namespace] = e.ResourceVersion
}

func (e *change) size() int64 { return int64(e.Object.Size()) }
