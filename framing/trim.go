package framing

import (
	"bytes"
	"slices"
	"sync/atomic"
)

// Trim is the form in which some clients get objects: without some fields, and without some objects. Its
// objects are spliced from the bytes of the whole ones, as lean objects are: see [Lean]. A Trim is
// immutable until it is retired, and may be used from any goroutine. Its address identifies it. nil is
// the form of whole objects, of all of them.
type Trim struct {
	drops []Drop
	where Where
	in    func(*Object) bool
	quiet bool
	keeps bool // only what Keep says stays
	mask  mask

	retired atomic.Bool
}

// Shape says what a Trim leaves of objects. Paths may be in any order.
type Shape struct {
	// Keep are paths to all that stays; none for everything. An object's type, name, namespace, uid,
	// resourceVersion and labels must be among it.
	Keep []Path
	// Drops are left out, of what Keep keeps too. They are at most MostDrops.
	Drops []Drop
	// Where selects objects by their values.
	Where Where
}

// Drop is some of the fields that a Trim leaves out. An object that had no annotations but those
// that are left out has none left.
type Drop struct {
	Fields []Path
	// Selects says from which objects the fields are left out, by their labels; nil for all. It
	// must give the same answer each time.
	Selects func(labels map[string]string) bool
}

// Where selects objects by the values of some of their fields.
type Where struct {
	// Values are at most MostValues, of different paths.
	Values []Value
	// Matches says for the values, in the same order, whether the object is selected. A value is a
	// string, a number or a boolean of JSON without quotes; nil if there is none. They are valid until
	// Matches returns. It must give the same answer each time.
	Matches func(values [][]byte) bool
}

// Value is a value that is read. In a list there is none.
type Value struct {
	Path Path
	// Text returns a value in protobuf as text: a number of a varint, or the bytes of another field.
	Text func(number uint64, bytes []byte) []byte
}

// MostDrops and MostValues are how many drops and values a Trim may have.
const (
	MostDrops  = 64
	MostValues = 16
)

// NewTrim returns a Trim in JSON and CBOR that leaves drops out.
func NewTrim(drops ...Drop) *Trim { return Shape{Drops: drops}.Trim() }

// Trim returns the Trim of a shape.
func (s Shape) Trim() *Trim {
	t := &Trim{drops: s.Drops, where: s.Where, keeps: len(s.Keep) > 0}
	for _, path := range s.Keep {
		t.mask.to(path, true).keep = true
	}
	for i, d := range s.Drops {
		for _, path := range d.Fields {
			t.mask.to(path, false).drops |= 1 << i
		}
	}
	for i, v := range s.Where.Values {
		end := t.mask.to(v.Path, false)
		end.value, end.text = i+1, v.Text
	}
	if a := t.mask.named([]byte(metadataName)).named([]byte(annotationsName)); a != nil {
		a.annotations = true
	}
	return t
}

// With returns t with a selection of objects, and quiet or not. in says whether an object may be in the
// selection, beside [Where]; nil for all. It must give the same answer each time.
func (t *Trim) With(in func(*Object) bool, quiet bool) *Trim {
	return &Trim{drops: t.drops, where: t.where, in: in, quiet: quiet, keeps: t.keeps, mask: t.mask}
}

// Retire says that clients of t get others from now on: objects let go of their forms for t when they have
// one for another Trim made. It may be called from any goroutine.
func (t *Trim) Retire() { t.retired.Store(true) }

func (t *Trim) isRetired() bool { return t != nil && t.retired.Load() }

// Selects reports whether objects may be outside of the selection of t, which may be nil.
func (t *Trim) Selects() bool { return t != nil && (t.in != nil || len(t.where.Values) > 0) }

// Quiet reports whether clients are told of changes only if they see them. t may be nil.
func (t *Trim) Quiet() bool { return t != nil && t.quiet }

// owns reports whether the objects of t have bytes of their own.
func (t *Trim) owns() bool { return t.keeps || t.quiet }

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
var Lean = NewTrim(Drop{Fields: []Path{Names(metadataName, managedFieldsName)}})

const (
	metadataName      = "metadata"
	annotationsName   = "annotations"
	managedFieldsName = "managedFields"
)

// splicedFrame makes a frame of the spliced object. It shares the bytes after the last splice.
func (o *Object) splicedFrame(t EventType, splices []splice) Frame {
	if len(splices) == 0 {
		return o.Frame(t)
	}
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
	return Frame{Head: head, Body: o.frames[len(o.frames)-len(frameTail(o.encoding))-behind:]}
}

// trimmed is an object's form for one Trim, made when it is first asked for.
type trimmed struct {
	outside bool  // of the selection
	counted int32 // bytes in Forms, whose mutex guards it; or dropped
	// Of a Trim whose objects have bytes of their own; nil of an object outside. shown has them, but
	// perhaps with the resourceVersion of an earlier version that is otherwise the same for clients of
	// t. Then exact has the object's own, once somebody asks for them.
	shown   *Object
	exact   atomic.Pointer[Object]
	skipped []skipped
	// Of any other.
	splices []splice // in their order; nil if the object has none of the fields
	frames  keptFrames
}

// as returns the object's form for t, which is not nil and not Lean. It takes less work if before, which
// may be nil, is the version before and has such a form.
func (o *Object) as(t *Trim, before *Object) *trimmed {
	o = o.Whole()
	made := false
	form := o.forms.For(t, func() trimmed {
		made = true
		return o.form(t, before)
	})
	if made {
		o.count(form, 0)
	}
	return form
}

func (o *Object) form(t *Trim, before *Object) trimmed {
	if t.in != nil && !t.in(o) {
		return trimmed{outside: true}
	}
	last := before.quiet(t)
	found, in := o.search(t, before, last)
	defer found.release()
	switch {
	case !in:
		return trimmed{outside: true}
	case !t.owns():
		found.heads = nil // they stay
		return trimmed{splices: slices.Clone(found.splices)}
	case last == nil || !found.shows(last.shown, o):
		return trimmed{shown: o.cut(found.splices), skipped: slices.Clone(found.skipped)}
	case slices.Equal(found.skipped, last.skipped):
		return trimmed{shown: last.shown, skipped: last.skipped}
	}
	return trimmed{shown: last.shown, skipped: slices.Clone(found.skipped)}
}

// quiet returns the form of the object, which may be nil, that the next version is compared with; nil if
// it is not quiet, has not been made, or shares its bytes with the object.
func (o *Object) quiet(t *Trim) *trimmed {
	if o == nil || !t.quiet {
		return nil
	}
	form := o.forms.first.Load().find(t)
	if form == nil || form.shown == nil || form.shown == o {
		return nil
	}
	return form
}

// shows reports whether clients who have been shown another version see no difference to the object that
// has been searched, but for its resourceVersion. If that takes another number of bytes, it need not say
// so.
func (c *trimmer) shows(shown, o *Object) bool {
	want, from := shown.Bytes(), 0
	goesOn := func(part []byte) bool {
		has := bytes.HasPrefix(want, part)
		if has {
			want = want[len(part):]
		}
		return has
	}
	keeps := func(to int) bool { // what stays, up to an offset
		if rv := (span{int(o.rvStart), int(o.rvEnd)}); from <= rv.start && rv.end <= to {
			if rv.len() != int(shown.rvEnd-shown.rvStart) || !goesOn(c.object[from:rv.start]) {
				return false
			}
			from, want = rv.end, want[rv.len():]
		}
		return goesOn(c.object[from:to])
	}
	for _, s := range c.splices {
		if !keeps(s.old.start) || !goesOn(s.with) {
			return false
		}
		from = s.old.end
	}
	return keeps(len(c.object)) && len(want) == 0
}

// In reports whether the object is in the selection of t, which may be nil. The answer is kept as long
// as the object. It takes less work if before, which may be nil, is the version before. It may be called
// from any goroutine.
func (o *Object) In(t *Trim, before *Object) bool { return !t.Selects() || !o.as(t, before).outside }

// SameIn reports whether the object differs from the version before in nothing that clients of t see,
// but for its resourceVersion. Both are in the selection of t, which is quiet.
func (o *Object) SameIn(t *Trim, before *Object) bool {
	if last := before.as(t, nil); last.shown != nil && o.as(t, before).shown == last.shown {
		return true
	}
	a, b := o.owned(t), before.owned(t)
	x, y := a.Bytes(), b.Bytes()
	if len(x) != len(y) { // so may be the resourceVersions, and in protobuf what counts their bytes
		splices := b.layout.at(new(spliceBuffer)[:0], b.encoding, y, a.ResourceVersion)
		return len(x) == len(y)+grown(splices) &&
			bytes.Equal(x, bytes.Join(appendSpliced(new(spliced)[:0], y, 0, splices), nil))
	}
	return a.rvStart == b.rvStart && a.rvEnd == b.rvEnd &&
		bytes.Equal(x[:a.rvStart], y[:b.rvStart]) && bytes.Equal(x[a.rvEnd:], y[b.rvEnd:])
}

// owned returns the object as clients of t get it, with bytes of its own.
func (o *Object) owned(t *Trim) *Object {
	o = o.Whole()
	form := o.as(t, nil)
	if form.shown != nil && form.shown.ResourceVersion == o.ResourceVersion {
		return form.shown
	}
	if exact := form.exact.Load(); exact != nil {
		return exact
	}
	found, _ := o.search(t, nil, nil)
	defer found.release()
	own := o.cut(found.splices)
	if form.shown != nil && form.exact.CompareAndSwap(nil, own) { // else it is outside, or another goroutine was faster
		o.count(form, own.formSize())
	}
	return own
}

// cut returns the spliced object, which is o itself without splices.
func (o *Object) cut(splices []splice) *Object {
	if len(splices) == 0 {
		return o
	}
	d := o.described()
	d.layout = o.moved(splices...)
	d.managedStart, d.managedEnd, d.metadata = 0, 0, 0 // only a whole object is made lean
	var parts [64][]byte
	d.frame(o.born, appendSpliced(parts[:0], o.Bytes(), 0, splices)...)
	return d
}

// TrimmedFrame is Frame for clients of t. A frame of type Added, or of the type with which the object
// arrived, is made when it is first asked for, and kept as long as the object. It shares the bytes
// behind the last of the fields, unless the object has bytes of its own for t. It may be called from
// any goroutine.
func (o *Object) TrimmedFrame(t *Trim, typ EventType) Frame {
	o = o.heldFor(t)
	switch {
	case t == nil, t == Lean && o.managedEnd == 0:
		return o.framed(typ)
	case t.owns():
		return o.owned(t).Frame(typ)
	}
	var form *trimmed
	frames := &o.lean
	if t != Lean {
		form = o.as(t, nil)
		if frames = &form.frames; len(form.splices) == 0 && !form.outside {
			return o.Frame(typ)
		}
	}
	kept := frames.of(o, typ)
	if kept == nil {
		return o.splicedFrame(typ, o.splices(t, new(spliceBuffer)[:0]))
	}
	if kept.Load() == nil {
		f := o.splicedFrame(typ, o.splices(t, new(spliceBuffer)[:0]))
		if kept.CompareAndSwap(nil, &f) { // unless another goroutine has made an equal one meanwhile
			o.count(form, len(f.Head)+frameSize)
		}
	}
	return *kept.Load()
}

// TrimmedLeft is Left for clients of t.
func (o *Object) TrimmedLeft(t *Trim, rv uint64) Frame {
	switch o = o.heldFor(t); {
	case t == nil, t == Lean && o.managedEnd == 0:
		return o.left(rv)
	case t.owns():
		return o.owned(t).Left(rv)
	}
	return o.Deleted(rv).TrimmedFrame(t, Deleted)
}

// AppendTrimmed appends the parts of the object's bytes as clients of t get them to dst. Read only.
func (o *Object) AppendTrimmed(dst [][]byte, t *Trim) [][]byte {
	o, splices := o.heldAs(t, new(spliceBuffer)[:0])
	return appendSpliced(dst, o.held(), 0, splices)
}

// heldAs returns the object that has the bytes of the form t, but for splices, which are in buf if they
// fit.
func (o *Object) heldAs(t *Trim, buf []splice) (held *Object, splices []splice) {
	if t != nil && t.owns() {
		return o.owned(t), nil
	}
	held = o.heldFor(t)
	return held, held.splices(t, buf)
}

// splices returns what makes the object trimmed, in buf if it fits. The objects of t have no bytes of
// their own.
func (o *Object) splices(t *Trim, buf []splice) []splice {
	switch {
	case t == nil, t == Lean && o.managedEnd == 0:
		return nil
	case t == Lean:
		object, managed := o.held(), o.managed()
		if o.encoding == JSON {
			managed = withComma(object, managed)
		}
		return o.without(buf, o.encoding, object, managed, int(o.metadata))
	}
	form := o.as(t, nil)
	if form.outside {
		found, _ := o.search(t, nil, nil)
		defer found.release()
		found.heads = nil // they stay
		return append(buf, found.splices...)
	}
	return form.splices
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
