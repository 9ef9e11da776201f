package framing

import "strconv"

// Object is one version of one API object, held as the bytes in which
// kube-apiserver sent it. It is immutable and may be shared between goroutines.
type Object struct {
	// Key is the object's place in a collection and its sort order: name, or
	// namespace + "/" + name, compared bytewise as etcd and kube-apiserver do.
	Key string
	// Namespace and Name are parts of Key; Namespace is "" in cluster scope.
	Namespace, Name string
	// ResourceVersion is metadata.resourceVersion. For the object of a DELETED
	// event it is that of the deletion.
	ResourceVersion uint64
	// Labels are metadata.labels; nil where there are none. Read only.
	Labels map[string]string
	// Fields are the values of the selectable fields, in the order of the field
	// list that the Scanner was made with. Read only.
	Fields []string

	born  EventType // what live frames the object as
	added Frame     // the object as an ADDED event
	live  Frame     // the object as an event of type born

	length         int32 // of the object's JSON, which begins added.Body or ends before the tail
	rvStart, rvEnd int32 // the resourceVersion's digits within the JSON
	item           int32 // where the object's members begin, after any kind and apiVersion that lead it
}

// JSON returns the object as it stands in a watch event. Read only.
func (o *Object) JSON() []byte {
	end := len(o.added.Body) - len(frameTail)
	return o.added.Body[end-int(o.length) : end : end]
}

// Size is the number of bytes that the object and its frames hold in memory.
func (o *Object) Size() int { return len(o.added.Head) + len(o.live.Head) + len(o.live.Body) }

// Frame returns the object as an event of type t, which is Added, Modified or
// Deleted. It costs nothing for Added and for the type that the object arrived
// with, and one copy otherwise.
func (o *Object) Frame(t EventType) Frame {
	switch t {
	case o.born:
		return o.live
	case Added:
		return o.added
	}
	return newFrame(t, o.JSON())
}

// Left returns the DELETED event that a client gets when a change at
// resourceVersion rv makes the object leave its selector: this, the last
// version that matched, with the change's resourceVersion
// (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, convertToWatchEvent).
func (o *Object) Left(rv uint64) Frame {
	json := o.JSON()
	return newFrame(Deleted, json[:o.rvStart], strconv.AppendUint(nil, rv, 10), json[o.rvEnd:])
}

// frame lays the object out in one allocation, see the package comment, and
// points its frames into it.
func (o *Object) frame(t EventType, json ...[]byte) {
	n := 0
	for _, part := range json {
		n += len(part)
	}
	addedHead := headLen(Added, n)
	liveHead := 0
	if t != Added {
		liveHead = headLen(t, n)
	}
	buf := make([]byte, 0, addedHead+liveHead+n+len(frameTail))
	buf = appendHead(buf, Added, n)
	if t != Added {
		buf = appendHead(buf, t, n)
	}
	for _, part := range json {
		buf = append(buf, part...)
	}
	buf = append(buf, frameTail...)

	o.born = t
	o.length = int32(n)
	if t == Added {
		o.added = Frame{Body: buf}
		o.live = o.added
		return
	}
	o.live = Frame{Body: buf[addedHead:]}
	o.added = Frame{Head: buf[:addedHead:addedHead], Body: buf[addedHead+liveHead:]}
}

// As returns the object with the frame of an event of type t made ready, so that all who take it share one. It is
// o itself where o has that frame.
func (o *Object) As(t EventType) *Object {
	if t == o.born || t == Added {
		return o
	}
	as := *o
	as.frame(t, o.JSON())
	return &as
}

// Deleted returns the object as the last version before a deletion at
// resourceVersion rv, which is what a DELETED event carries.
func (o *Object) Deleted(rv uint64) *Object {
	d := *o
	digits := strconv.AppendUint(nil, rv, 10)
	json := o.JSON()
	d.ResourceVersion = rv
	d.rvEnd = d.rvStart + int32(len(digits))
	d.frame(Deleted, json[:o.rvStart], digits, json[o.rvEnd:])
	return &d
}
