package framing

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Forms counts the bytes that forms of a cache's objects take: those of views, and frames without
// metadata.managedFields. Forms are made when clients first want them, and live as long as their
// objects. The zero value counts none. Any goroutine may call its methods.
type Forms struct {
	mu    sync.Mutex
	bytes int64
}

// Bytes returns how many bytes the forms take that are counted now.
func (f *Forms) Bytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

// formsCounted is where an object's forms are counted. Forms.mu guards the numbers.
type formsCounted struct {
	in      atomic.Pointer[Forms] // nil if they are not counted
	counted int32                 // bytes, but for those that versions may share
	shownBy int32                 // in an object that is itself a form: the objects that are counted and show it
}

// CountForms has the forms of the object counted in f that are made from now on.
func (o *Object) CountForms(f *Forms) { o.in.Store(f) }

// ForgetForms says that nothing keeps the object any more, so its forms are garbage.
func (o *Object) ForgetForms() {
	f := o.in.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !o.in.CompareAndSwap(f, nil) {
		return
	}
	f.bytes -= int64(o.counted)
	o.counted = 0
	for e := o.forms.first.Load(); e != nil; e = e.next.Load() {
		f.unshow(o, &e.value)
	}
}

// unshow says that an object lets go of a form. f is locked.
func (f *Forms) unshow(o *Object, form *trimmed) {
	if shown := form.shown; form.counted > 0 && shown != nil && shown != o {
		if shown.shownBy--; shown.shownBy == 0 {
			f.bytes -= int64(shown.formSize())
		}
	}
}

// count counts a form that has been made, which may be nil for a lean one, and n more bytes. An object that
// has a form more lets go of those that nobody will ask for.
func (o *Object) count(form *trimmed, n int) {
	f := o.in.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.in.Load() != f {
		return
	}
	if form != nil && form.counted == 0 {
		o.forms.drop(func(old *trimmed) {
			f.unshow(o, old)
			o.counted -= old.counted
			f.bytes -= int64(old.counted)
			old.counted = dropped
		})
	}
	switch {
	case form == nil:
	case form.counted == dropped:
		return
	case form.counted == 0:
		n += entrySize + len(form.splices)*spliceSize + len(form.skipped)*skippedSize
		if shown := form.shown; shown != nil && shown != o {
			if shown.shownBy++; shown.shownBy == 1 {
				f.bytes += int64(shown.formSize())
			}
		}
	}
	if form != nil {
		form.counted += int32(n)
	}
	o.counted += int32(n)
	f.bytes += int64(n)
}

// dropped is trimmed.counted of a form that its object has let go of.
const dropped = -1

const (
	entrySize   = int(unsafe.Sizeof(trimEntry[trimmed]{}))
	spliceSize  = int(unsafe.Sizeof(splice{}))
	skippedSize = int(unsafe.Sizeof(skipped{}))
	frameSize   = int(unsafe.Sizeof(Frame{}))
	objectSize  = int(unsafe.Sizeof(Object{}))
)

// formSize is the memory of an object that is a form of another one, with which it shares what it is
// described by.
func (o *Object) formSize() int { return objectSize + o.Size() }
