package fanout

import (
	"sync/atomic"

	"github.com/watchfan/watchfan/framing"
)

// Event is one change of the collection, as the history keeps it. It is
// immutable but for the frame that it makes on first demand.
type Event struct {
	// Type is what happened to the object.
	Type framing.EventType
	// Object is the version that the change made; for Deleted the last one, with the
	// deletion's resourceVersion.
	Object *framing.Object
	// Prev is the version before; nil if there was none or if it is not known.
	Prev *framing.Object
	// PrevUnknown is true where a change is known only from a replay that began
	// after the version before.
	PrevUnknown bool
	// Received is when the change arrived; 0 for changes that were replayed.
	Received Instant

	left atomic.Pointer[framing.Frame]
}

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
func (e *Event) frameFor(f *Filter) (framing.Frame, bool) {
	cur := e.Type != framing.Deleted && f.Match(e.Object)
	old := e.Prev != nil && f.Match(e.Prev)
	if e.PrevUnknown && (e.Type == framing.Deleted || f.fixed()) {
		// A deletion carries the version before; scope and name never change.
		old = f.Match(e.Object)
	}
	switch {
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
func (e *Event) leftFrame() framing.Frame {
	if f := e.left.Load(); f != nil {
		return *f
	}
	f := e.Prev.Left(e.Object.ResourceVersion)
	e.left.CompareAndSwap(nil, &f)
	return f
}

// undecidable reports whether what f's clients get of the event depends on a
// version that is not known.
func (e *Event) undecidable(f *Filter) bool {
	return e.PrevUnknown && e.Type != framing.Deleted && !f.fixed() && f.inScope(e.Object)
}

func (e *Event) size() int64 { return int64(e.Object.Size()) }
