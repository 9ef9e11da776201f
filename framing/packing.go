package framing

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/flate"
)

// Packing makes objects smaller of which nobody wants metadata.managedFields now: they hold the bytes
// that lean clients are sent ([Lean]), and what those lack compressed. The managedFields of a
// collection's objects are much alike, so they are compressed after those of a few of them, and take
// about a tenth of their bytes:
//
//	┌ ADDED head ─┐┌ MODIFIED head ─┐┌ lean object ┐┌ tail ┐   ┌ managedFields, DEFLATE ┐
//
// A packed object is the same to everybody. Whoever wants it whole makes it anew, byte for byte, which
// takes a few µs; nobody keeps that. To pack one takes 10 to 20 µs. A Packing is immutable and may be used
// from any goroutine.
type Packing struct{ like []byte }

// mostLike is how many bytes of managedFields others are compressed after. Each object costs the time to
// read them.
const mostLike = 4 << 10

// NewPacking returns a Packing for objects with managedFields like those of samples.
func NewPacking(samples []*Object) *Packing {
	p := &Packing{}
	for _, o := range samples {
		o = o.Whole()
		managed := o.Bytes()[o.managedStart:o.managedEnd]
		p.like = append(p.like, managed[:min(len(managed), mostLike/len(samples))]...)
	}
	return p
}

// packed is what a packed object has beside the bytes of the lean one.
type packed struct {
	layout            // of the whole object
	by       *Packing // that deflated is to be read with
	deflated []byte   // what the lean object lacks, one after the other
	lacks    [2]lack  // in their order
}

// lack is a place where the lean object has some bytes, or none, instead of others.
type lack struct{ at, has, instead int32 }

// packedSize is the memory of a packed, without its bytes.
const packedSize = int(unsafe.Sizeof(packed{}))

// size is the memory that p takes; 0 for nil.
func (p *packed) size() int {
	if p == nil {
		return 0
	}
	return packedSize + len(p.deflated)
}

// Packed reports whether the object is packed.
func (o *Object) Packed() bool { return o.packed != nil }

// Pack returns the object packed. It returns o itself if it is packed, or would be no smaller.
func (p *Packing) Pack(o *Object) *Object {
	if o.packed != nil || o.managed().len() < 2*packedSize {
		return o
	}
	splices, whole := o.splices(Lean, new(spliceBuffer)[:0]), o.Bytes()
	k, moved := &packed{layout: o.layout, by: p}, 0
	var lacking []byte
	for i, s := range splices {
		k.lacks[len(k.lacks)-len(splices)+i] = lack{int32(s.old.start + moved), int32(len(s.with)), int32(s.old.len())}
		lacking = append(lacking, whole[s.old.start:s.old.end]...)
		moved += s.grown()
	}
	var deflated bytes.Buffer
	_ = flate.StatelessDeflate(&deflated, lacking, true, p.like) // a bytes.Buffer never fails
	if packedSize+deflated.Len() >= len(lacking) {
		return o
	}
	lean := o.described()
	lean.layout, lean.packed = o.moved(splices...), k
	lean.managedStart, lean.managedEnd, lean.metadata = 0, 0, 0
	lean.frame(o.born, appendSpliced(new(spliced)[:0], whole, 0, splices)...)
	n, all := len(lean.frames), slices.Concat(lean.frames, deflated.Bytes()) // of one size class
	lean.frames, k.deflated = all[:n:n], all[n:len(all):len(all)]
	return lean
}

// Whole returns the object as it came, not packed. It is o itself unless that is packed.
func (o *Object) Whole() *Object {
	if o.packed == nil {
		return o
	}
	k, lean := o.packed, o.held()
	lacking := k.inflate()
	var buf [2*len(k.lacks) + 1][]byte
	parts, from := buf[:0], int32(0)
	for _, l := range k.lacks {
		parts = append(parts, lean[from:l.at], lacking[:l.instead])
		from, lacking = l.at+l.has, lacking[l.instead:]
	}
	w := o.described()
	w.layout = k.layout
	w.frame(o.born, append(parts, lean[from:])...)
	return w
}

// inflaters are kept, because each has a window of 32 KiB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}

// inflate returns what the lean object lacks.
func (p *packed) inflate() []byte {
	n := int32(0)
	for _, l := range p.lacks {
		n += l.instead
	}
	in := inflaters.Get().(io.Reader)
	defer inflaters.Put(in)
	lacking := make([]byte, n)
	err := in.(flate.Resetter).Reset(bytes.NewReader(p.deflated), p.by.like)
	if err == nil {
		_, err = io.ReadFull(in, lacking)
	}
	if err != nil {
		panic("read what was packed: " + err.Error()) // only if memory is damaged
	}
	return lacking
}

// heldFor returns the object that has the bytes of the form t, or those from which they are spliced.
func (o *Object) heldFor(t *Trim) *Object {
	if t == Lean {
		return o
	}
	return o.Whole()
}
