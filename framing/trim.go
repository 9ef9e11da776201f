package framing

import (
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// Trim says which fields are left out of objects. Objects without them are spliced from the bytes
// of the whole ones, as lean objects are: see [Lean]. A Trim is immutable and may be used from any
// goroutine. Its address identifies it. nil leaves nothing out.
type Trim struct {
	drops    []Drop
	tree     trimTree
	metadata bool // all fields are of the metadata
}

// Drop is some of the fields that a Trim leaves out.
type Drop struct {
	// Fields are paths of member names, as in JSON. A path of metadata has two names.
	Fields [][]string
	// Annotations are names. An object that had no others has no annotations left.
	Annotations []string
	// Selects says from which objects the fields are left out, by their labels; nil for all. It
	// must give the same answer each time.
	Selects func(labels map[string]string) bool
}

// MostDrops is how many drops a Trim may have.
const MostDrops = 64

// NewTrim returns a Trim of at most MostDrops drops.
func NewTrim(drops ...Drop) *Trim {
	t := &Trim{drops: drops, metadata: true}
	for i, d := range drops {
		for _, path := range d.Fields {
			t.tree.add(path, 1<<i)
			t.metadata = t.metadata && path[0] == metadataName
		}
		for _, name := range d.Annotations {
			t.tree.add([]string{metadataName, annotationsName, name}, 1<<i)
			t.tree.at(metadataName).at(annotationsName).goesEmpty = true
		}
	}
	return t
}

const (
	metadataName      = "metadata"
	annotationsName   = "annotations"
	managedFieldsName = "managedFields"
)

var managedFieldsPath = []string{metadataName, managedFieldsName}

// Fits reports whether objects in an encoding can be trimmed. metadata says that they are metadata
// only. In protobuf a field has a number, and only those of metadata are known here.
func (t *Trim) Fits(e Encoding, metadata bool) bool {
	return t == nil || e != Protobuf || t.metadata || metadata
}

// trimTree is the union of the paths of a Trim.
type trimTree struct {
	drops     uint64 // a bit for each drop that leaves this field out
	members   map[string]*trimTree
	goesEmpty bool // it is left out itself if all of its members are
}

func (t *trimTree) add(path []string, drop uint64) {
	for _, name := range path {
		if t.members == nil {
			t.members = make(map[string]*trimTree)
		}
		if t.members[name] == nil {
			t.members[name] = &trimTree{}
		}
		t = t.members[name]
	}
	t.drops |= drop
}

// at returns the tree for a member; nil for none. t may be nil.
func (t *trimTree) at(name string) *trimTree {
	if t == nil {
		return nil
	}
	return t.members[name]
}

// splice is a place at which a trimmed object differs from the whole one: other bytes, or none,
// instead of those of old.
type splice struct {
	old  span
	with []byte
}

// grown is how many bytes longer the spliced object is.
func grown(splices []splice) (n int) {
	for _, s := range splices {
		n += len(s.with) - s.old.len()
	}
	return n
}

// appendSpliced appends the parts of the spliced object to dst, from an offset in the whole one on.
// Splices before that are left out.
func appendSpliced(dst [][]byte, object []byte, from int, splices []splice) [][]byte {
	for _, s := range splices {
		if s.old.start < from {
			continue
		}
		for _, part := range [...][]byte{object[from:s.old.start], s.with} {
			if len(part) > 0 {
				dst = append(dst, part)
			}
		}
		from = s.old.end
	}
	if from < len(object) {
		dst = append(dst, object[from:])
	}
	return dst
}

// splicedFrame makes a frame of the spliced object. It shares the bytes after the last splice.
func (o *Object) splicedFrame(t EventType, splices []splice) Frame {
	object := o.Bytes()
	n := len(object) + grown(splices)
	behind := len(object) - splices[len(splices)-1].old.end
	head := make([]byte, 0, headLen(o.encoding, t, n)+n-behind)
	head = appendHead(head, o.encoding, t, n)
	at := 0
	for _, s := range splices {
		head = append(append(head, object[at:s.old.start]...), s.with...)
		at = s.old.end
	}
	body := o.added.Body
	return Frame{Head: head, Body: body[len(body)-len(frameTail(o.encoding))-behind:]}
}

// trimmed is an object's form without the fields of one Trim, made when it is first asked for.
type trimmed struct {
	splices []splice // in their order; nil if the object has none of the fields
	frames  keptFrames
}

// in returns the object's form for t.
func (o *Object) in(t *Trim) *trimmed {
	return o.forms.For(t, func() trimmed { return trimmed{splices: o.trim(t)} })
}

// TrimmedFrame is Frame without the fields of t. A frame of type Added, or of the type with which
// the object arrived, is made when it is first asked for, and kept as long as the object. It shares
// the bytes behind the last of the fields. It may be called from any goroutine.
func (o *Object) TrimmedFrame(t *Trim, typ EventType) Frame {
	frames := o.framesWithout(t)
	if frames == nil {
		return o.Frame(typ)
	}
	kept := frames.of(o, typ)
	if kept == nil {
		return o.splicedFrame(typ, o.splices(t, new(spliceBuffer)[:0]))
	}
	if kept.Load() == nil {
		f := o.splicedFrame(typ, o.splices(t, new(spliceBuffer)[:0]))
		kept.CompareAndSwap(nil, &f) // unless another goroutine has made an equal one meanwhile
	}
	return *kept.Load()
}

// framesWithout returns the kept frames without the fields of t; nil if the object has none of the
// fields.
func (o *Object) framesWithout(t *Trim) *keptFrames {
	switch {
	case t == nil, t == Lean && !o.hasManaged():
		return nil
	case t == Lean:
		return &o.lean
	}
	form := o.in(t)
	if form.splices == nil {
		return nil
	}
	return &form.frames
}

// TrimmedLeft is Left without the fields of t.
func (o *Object) TrimmedLeft(t *Trim, rv uint64) Frame {
	if t == nil {
		return o.Left(rv)
	}
	return o.Deleted(rv).TrimmedFrame(t, Deleted)
}

// AppendTrimmed appends the parts of the object's bytes without the fields of t to dst. Read only.
func (o *Object) AppendTrimmed(dst [][]byte, t *Trim) [][]byte {
	return appendSpliced(dst, o.Bytes(), 0, o.splices(t, new(spliceBuffer)[:0]))
}

// AppendTrimmedItem appends the parts of one item of the list without the fields of t to dst, as
// Item returns them. Read only.
func (f ListForm) AppendTrimmedItem(dst [][]byte, t *Trim, o *Object, first bool) [][]byte {
	open, item := f.Item(o, first)
	splices := o.splices(t, new(spliceBuffer)[:0])
	if f.encoding == CBOR && !f.typed {
		open = cborItemHead(o.Bytes(), splices)
	}
	if open != "" {
		dst = append(dst, []byte(open))
	}
	object := o.Bytes()[:o.itemEnd]
	return appendSpliced(dst, object, len(object)-len(item), splices)
}

// splices returns what makes the object trimmed, in buf if it fits.
func (o *Object) splices(t *Trim, buf []splice) []splice {
	switch t {
	case nil:
		return nil
	case Lean:
		return o.leanSplices(buf)
	}
	return o.in(t).splices
}

// trim searches for the fields of t.
func (o *Object) trim(t *Trim) []splice {
	c := trimmer{object: o.Bytes()}
	for i, d := range t.drops {
		if d.Selects == nil || d.Selects(o.Labels) {
			c.drops |= 1 << i
		}
	}
	switch {
	case c.drops == 0:
		return nil
	case o.encoding == Protobuf:
		c.protobuf(o.layout, t.tree.at(metadataName))
	case o.encoding == CBOR:
		c.cbor(&t.tree)
	default:
		c.json(&t.tree)
	}
	return slices.Clip(c.splices)
}

// trimmer searches one object for fields that are left out.
type trimmer struct {
	object  []byte
	drops   uint64 // those that select the object
	splices []splice
}

// leaves reports whether the field at t is left out.
func (c *trimmer) leaves(t *trimTree) bool { return t != nil && t.drops&c.drops != 0 }

// cut leaves out the bytes of at.
func (c *trimmer) cut(at span) {
	if n := len(c.splices); n > 0 && c.splices[n-1].old.end == at.start && c.splices[n-1].with == nil {
		c.splices[n-1].old.end = at.end
		return
	}
	c.splices = append(c.splices, splice{old: at})
}

// metadataFields are the numbers of the fields of ObjectMeta that have names in a [Drop]
// (k8s.io/apimachinery/pkg/apis/meta/v1, generated.proto).
var metadataFields = map[protowire.Number]string{
	2: "generateName", 4: "selfLink", 7: "generation", 8: "creationTimestamp", 9: "deletionTimestamp",
	10: "deletionGracePeriodSeconds", metaAnnotations: annotationsName, 13: "ownerReferences", 14: "finalizers",
	metaManagedFields: managedFieldsName,
}

// protobuf searches the metadata. Two lengths come before it, and are written anew.
func (c *trimmer) protobuf(l layout, t *trimTree) {
	raw := mustOpen(c.object, int(l.item), tagRaw)
	fields := newCursor(c.object, mustOpen(c.object, raw.start, tagMetadata))
	for fields.next() {
		member := t.at(metadataFields[fields.number])
		if fields.number == metaAnnotations && member != nil && !c.leaves(member) {
			key, _ := mapEntry(&fields)
			member = member.at(string(key))
		}
		if c.leaves(member) {
			c.cut(fields.field)
		}
	}
	if len(c.splices) == 0 {
		return
	}
	old, headers := l.protobufHeaders(c.object, grown(c.splices))
	c.splices = slices.Insert(c.splices, 0, splice{old, headers})
}

// cbor searches a map of CBOR, whose head counts its entries.
func (c *trimmer) cbor(t *trimTree) {
	items := itemCursor{input: c.object}
	items.selfDescribed()
	c.cborMap(&items, t)
}

// cborMap searches the map at the cursor. It returns the number of its entries, and how many of
// them are left out.
func (c *trimmer) cborMap(items *itemCursor, t *trimTree) (entries, left uint64) {
	at, before := items.at, len(c.splices)
	_, entries, size, _ := itemHead(c.object[at:]) // it has been read before
	for start, name := range items.entries() {
		member, mark := t.at(string(name)), len(c.splices)
		all := false
		if !c.leaves(member) && member != nil && member.members != nil && c.object[items.at]>>5 == majorMap {
			n, gone := c.cborMap(items, member)
			all = member.goesEmpty && n > 0 && n == gone
		} else {
			items.skip()
		}
		if all || c.leaves(member) {
			c.splices = c.splices[:mark]
			c.cut(span{start, items.at})
			left++
		}
	}
	if left > 0 {
		head := appendItemHead(nil, majorMap, entries-left)
		c.splices = slices.Insert(c.splices, before, splice{span{at, at + size}, head})
	}
	return entries, left
}

// cborItemHead returns the head of a list item without its type.
func cborItemHead(object []byte, splices []splice) string {
	at := len(selfDescribed)
	_, entries, _, _ := itemHead(object[at:])
	if len(splices) > 0 && splices[0].old.start == at {
		_, entries, _, _ = itemHead(splices[0].with)
	}
	var head [9]byte
	return string(appendItemHead(head[:0], majorMap, entries-2))
}

// keptFrames are the frames of one form that an object keeps; nil until somebody asks for them.
type keptFrames struct{ added, live atomic.Pointer[Frame] }

// of returns the place of a frame of type t; nil for a type that is not kept.
func (k *keptFrames) of(o *Object, t EventType) *atomic.Pointer[Frame] {
	switch t {
	case o.born:
		return &k.live
	case Added:
		return &k.added
	}
	return nil
}
