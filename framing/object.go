package framing

// Object is one version of one API object, held as the bytes in which kube-apiserver sent it. It is
// immutable and may be shared between goroutines.
type Object struct {
	// Key identifies the object in a collection and is its sort order: name, or namespace + "/" +
	// name, compared bytewise as in etcd and kube-apiserver.
	Key string
	// Namespace and Name are parts of Key. Namespace is "" in cluster scope.
	Namespace, Name string
	// ResourceVersion is metadata.resourceVersion. For the object of a DELETED event it is that of
	// the deletion.
	ResourceVersion uint64
	// Labels are metadata.labels; nil if there are none. Read only.
	Labels map[string]string
	// Fields are the values of the selectable fields, in the order of the Scanner's field list.
	// Read only.
	Fields []string

	uidHash uint64 // see UIDHash
	// frames has the object as an ADDED event, and as one of type born, as the package comment draws
	// them. The first begins with frames[:live], and goes on with frames[body:]. The other is frames[live:].
	// If the object is packed, they and the layout are the lean object's.
	frames     []byte
	live, body int32
	layout
	encoding Encoding
	born     EventType

	packed *packed // nil unless the object is packed: see Packing

	lean  keptFrames
	forms PerTrim[trimmed] // but for Lean
	formsCounted
}

// Bytes returns the object as it is in a watch event. Read only.
func (o *Object) Bytes() []byte { return o.Whole().held() }

// held returns the bytes in which the object is held.
func (o *Object) held() []byte {
	end := len(o.frames) - len(frameTail(o.encoding))
	return o.frames[o.body:end:end]
}

// Size is the number of bytes that the object and its frames hold in memory, without its forms: see
// [Forms].
func (o *Object) Size() int { return len(o.frames) + o.packed.size() }

// Frame returns the object as an event of type t, which is Added, Modified or Deleted. It costs
// nothing for Added and for the type with which the object arrived, and one copy otherwise.
func (o *Object) Frame(t EventType) Frame { return o.Whole().framed(t) }

func (o *Object) framed(t EventType) Frame {
	switch t {
	case o.born:
		return Frame{Body: o.frames[o.live:]}
	case Added:
		return Frame{Head: o.frames[:o.live:o.live], Body: o.frames[o.body:]}
	}
	return newFrame(o.encoding, t, o.held())
}

// Left returns the DELETED event for a client whose selector the object leaves with a change at
// resourceVersion rv. The event has this object, the last version that matched, with the change's
// resourceVersion (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, convertToWatchEvent).
func (o *Object) Left(rv uint64) Frame { return o.Whole().left(rv) }

func (o *Object) left(rv uint64) Frame {
	splices := o.layout.at(new(spliceBuffer)[:0], o.encoding, o.held(), rv)
	return newFrame(o.encoding, Deleted, appendSpliced(new(spliced)[:0], o.held(), 0, splices)...)
}

// frame lays the object out in one allocation, as the package comment draws it, and sets its
// frames.
func (o *Object) frame(t EventType, object ...[]byte) {
	length := lengthOf(object)
	var buf heads
	head := appendHead(buf[:0], o.encoding, Added, length)
	if o.born = t; t != Added {
		o.live = int32(len(head))
		head = appendHead(head, o.encoding, t, length)
	}
	o.body, o.frames = int32(len(head)), layOut(o.encoding, head, object)
}

// As returns the object with the frame of an event of type t prepared, and all clients that get it
// share that frame. It returns o itself if o has the frame.
func (o *Object) As(t EventType) *Object {
	if t == o.born || t == Added {
		return o
	}
	o = o.Whole()
	as := o.described()
	as.frame(t, o.Bytes())
	return as
}

// Deleted returns the object as the last version before a deletion at resourceVersion rv. A DELETED
// event carries it.
func (o *Object) Deleted(rv uint64) *Object {
	o = o.Whole()
	d := o.described()
	d.ResourceVersion = rv
	splices := o.layout.at(new(spliceBuffer)[:0], o.encoding, o.Bytes(), rv)
	d.layout = o.moved(splices...)
	d.frame(Deleted, appendSpliced(new(spliced)[:0], o.Bytes(), 0, splices)...)
	return d
}

// Repeated returns an object with resourceVersion rv and with o's frames, whose bytes still have the
// old one. It is for benchmarks, whose clients don't read the bytes.
func (o *Object) Repeated(rv uint64) *Object {
	r := o.described()
	r.ResourceVersion = rv
	r.born, r.frames, r.live, r.body, r.packed = o.born, o.frames, o.live, o.body, o.packed
	return r
}

// described returns an object with o's description and layout, and without frames.
func (o *Object) described() *Object {
	return &Object{
		Key:             o.Key,
		Namespace:       o.Namespace,
		Name:            o.Name,
		ResourceVersion: o.ResourceVersion,
		Labels:          o.Labels,
		Fields:          o.Fields,
		uidHash:         o.uidHash,
		encoding:        o.encoding,
		layout:          o.layout,
	}
}
