package fanout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/watchfan/watchfan/framing"
)

// change is one change of the collection, as the history keeps it. It is immutable except for the
// frame that it builds on first demand.
type change struct {
	// Type is what happened to the object.
	Type framing.EventType
	// PrevUnknown is true if the change is known only from a replay that began after the version
	// before.
	PrevUnknown bool
	recipients  recipients
	// Object is the version that the change made. For Deleted it is the last version, with the
	// resourceVersion of the deletion.
	Object *framing.Object
	// Prev is the version before; nil if there was none or if it is not known.
	Prev *framing.Object
	// ResourceVersion is the change's place in the history: clients get it if they resume from
	// before it. It is the object's own, and for a removal by a relist one more than sentVersion.
	// See the package comment, Relists.
	ResourceVersion uint64
	// Received is when the change arrived.
	Received MonotonicTime

	left framing.PerTrim[framing.Frame] // see leftFrame
}

// recipients says which clients a change is for. A relist splits some changes in two, and each
// client gets at most one of the halves.
type recipients uint8

const (
	everyone recipients = iota
	leaving             // clients whose filters selected the version before and not this one
	staying             // clients whose filters select this one
)

// frameFor returns what a client with filter f gets of the change, if anything, in the form of t. It
// follows kube-apiserver (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go,
// convertToWatchEvent).
//
//	matched before  matches now
//	no              yes          ADDED     new version
//	yes             yes          MODIFIED  new version; nothing if t is quiet and the form is the same
//	yes             no           DELETED   version before, with this resourceVersion
//	yes             deleted      DELETED   last version, as upstream sent it
//	no              no           nothing
//
// quiet says that it gets nothing because t is quiet.
func (e *change) frameFor(f *Filter, t *framing.Trim) (frame framing.Frame, ok, quiet bool) {
	old := e.Prev != nil && f.Match(e.Prev)
	cur := e.Type != framing.Deleted && f.follows(e.Object, e.Prev)
	if e.PrevUnknown && (e.Type == framing.Deleted || f.fixed) {
		// A deletion carries the version before; namespace and name never change.
		old = f.Match(e.Object)
	}
	if e.Type == framing.Deleted && f.namespaces.unknown(e.Object.Namespace) {
		old = f.matches(cmp.Or(e.Prev, e.Object), nil)
	}
	switch {
	case e.recipients == leaving && cur, e.recipients == staying && !cur:
		return frame, false, false
	case cur && old && t.Quiet() && e.Prev != nil && e.Object.SameIn(t, e.Prev):
		return frame, false, true
	case cur && old:
		return e.Object.TrimmedFrame(t, framing.Modified), true, false
	case cur:
		return e.Object.TrimmedFrame(t, framing.Added), true, false
	case old && e.Type == framing.Deleted:
		return e.Object.TrimmedFrame(t, framing.Deleted), true, false
	case old:
		return e.leftFrame(t), true, false
	}
	return frame, false, false
}

// leftFrame returns the DELETED frame for clients whose selector the object leaves, without the
// fields of t. It is built on first demand.
func (e *change) leftFrame(t *framing.Trim) framing.Frame {
	return *e.left.For(t, func() framing.Frame { return e.Prev.TrimmedLeft(t, e.sentVersion()) })
}

// sentVersion is the resourceVersion that clients get with the change.
func (e *change) sentVersion() uint64 {
	if e.recipients == leaving {
		return e.ResourceVersion - 1
	}
	return e.Object.ResourceVersion
}

// mayLeave reports whether a filter may exist that selected the version before and does not select
// this one.
func (e *change) mayLeave() bool {
	return !maps.Equal(e.Prev.Labels, e.Object.Labels) || !slices.Equal(e.Prev.Fields, e.Object.Fields)
}

// unresolved reports whether what clients with selectors get of the change depends on an unknown
// version.
func (e *change) unresolved() bool { return e.PrevUnknown && e.Type != framing.Deleted }

// forget says that the history does not keep the change any more, and so not the version before. What
// has been deleted is in no snapshot.
func (e *change) forget() {
	if e.Prev != nil {
		e.Prev.ForgetForms()
	}
	if e.Type == framing.Deleted {
		e.Object.ForgetForms()
	}
}

func (e *change) size() int64 { return int64(e.Object.Size()) }
