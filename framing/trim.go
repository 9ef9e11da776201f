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
	tree     tree[string] // its leaves are the indexes of drops
	metadata bool         // all fields are of the metadata
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
			t.tree.add(path, i)
			t.metadata = t.metadata && path[0] == metadataName
		}
		for _, name := range d.Annotations {
			t.tree.add([]string{metadataName, annotationsName, name}, i)
		}
	}
	return t
}

// Lean leaves out metadata.managedFields, which may be half of an object's bytes. Clients ask for
// it with drop=metadata.managedFields in their Accept header (KEP-5958). Objects know where it is,
// so nothing is searched for. A lean object is spliced from the bytes of the whole object, and
// shares those after managedFields with it:
//
//	┌ of the lean frame alone ──────────────────────────┐   ┌ of the whole object ┐
//	<size>⏎{"type":"ADDED","object":{…,"metadata":{"name":"x"    },"spec":{…}}}⏎⏎
//	└ Head                                              ┘   └ Body                ┘
//
// The metadata comes early in most objects, so a lean frame takes little memory of its own.
var Lean = NewTrim(Drop{Fields: [][]string{{metadataName, managedFieldsName}}})

const (
	metadataName      = "metadata"
	annotationsName   = "annotations"
	managedFieldsName = "managedFields"
)

// Fits reports whether objects in an encoding can be trimmed. metadata says that they are metadata
// only. In protobuf a field has a number, and only those of metadata are known here.
func (t *Trim) Fits(e Encoding, metadata bool) bool {
	return t == nil || e != Protobuf || t.metadata || metadata
}

// splicedFrame makes a frame of the spliced object. It shares the bytes after the last splice.
func (o *Object) splicedFrame(t EventType, splices []splice) Frame {
	object := o.Bytes()
	n := len(object) + grown(splices)
	behind := len(object) - splices[len(splices)-1].old.end
	var buf heads
	opening := appendHead(buf[:0], o.encoding, t, n)
	head := append(make([]byte, 0, len(opening)+n-behind), opening...)
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
	case t == nil, t == Lean && o.managedEnd == 0:
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
	if f.encoding == CBOR && !f.typed() {
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
	switch {
	case t == nil, t == Lean && o.managedEnd == 0:
		return nil
	case t == Lean:
		managed := span{int(o.managedStart), int(o.managedEnd)}
		return o.without(buf, o.encoding, o.Bytes(), managed, int(o.metadata))
	}
	return o.in(t).splices
}

// trim searches for the fields of t.
func (o *Object) trim(t *Trim) []splice {
	c := trimmer{encoding: o.encoding, object: o.Bytes(), annotations: t.tree.at(metadataName).at(annotationsName)}
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
	default:
		in := newValues(o.encoding, nil)
		in.reset(c.object)
		in.tag()
		c.members(in, &t.tree)
	}
	return slices.Clip(c.splices)
}

// trimmer searches one object for fields that are left out.
type trimmer struct {
	encoding    Encoding
	object      []byte
	drops       uint64        // those that select the object
	annotations *tree[string] // which are left out if all of them are
	splices     []splice
}

// leaves reports whether the field at t is left out.
func (c *trimmer) leaves(t *tree[string]) bool {
	return t != nil && slices.ContainsFunc(t.leaves, func(drop int) bool { return c.drops&(1<<drop) != 0 })
}

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

// protobuf searches the metadata, which t is for.
func (c *trimmer) protobuf(l layout, t *tree[string]) {
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
	if len(c.splices) > 0 {
		c.splices = l.inMetadata(nil, c.object, c.splices...)
	}
}

// members searches the object that is read next, in JSON or CBOR. A member is left out with the comma
// behind it. Without a member behind it that stays, it is left out with the one before it:
//
//	{"a":1,"b":2,"c":3}  without b  {"a":1,"c":3}  without b, c  {"a":1}
//	       └────┘                                      └───────────┘
//
// In CBOR there are no commas, and the head of a map counts its entries. members reports whether all
// members are left out.
func (c *trimmer) members(in values, t *tree[string]) (all bool) {
	head, before, left := in.start(), len(c.splices), 0
	stays := -1   // the end of the last member that stays
	open := false // the last member was left out
	for start, name := range members(in) {
		mark := len(c.splices)
		if open {
			c.splices[mark-1].old.end = start
		}
		if open = c.member(in, t.members[string(name)]); !open {
			stays = in.offset()
			continue
		}
		c.splices = c.splices[:mark]
		c.cut(span{start, in.offset()})
		left++
	}
	if open && stays >= 0 {
		last := &c.splices[len(c.splices)-1].old
		last.start = min(last.start, stays)
	}
	if left > 0 && c.encoding == CBOR {
		c.splices = slices.Insert(c.splices, before, fewerEntries(c.object, head, uint64(left)))
	}
	return left > 0 && stays < 0
}

// member reads the value of a member, and reports whether all of it is left out.
func (c *trimmer) member(in values, t *tree[string]) bool {
	if t == nil || c.leaves(t) || t.members == nil || in.kind() != '{' {
		in.skip()
		return c.leaves(t)
	}
	return c.members(in, t) && t == c.annotations
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
