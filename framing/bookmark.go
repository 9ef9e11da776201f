package framing

import "strconv"

// BookmarkForm is how kube-apiserver writes bookmarks of one kind: an empty
// object of the kind in its encoder's form, with nothing set but the
// resourceVersion. It is learned from the upstream's own bookmarks, because the
// form depends on the kind's Go type and on the server's version.
//
// The zero BookmarkForm is an unknown form. A form is immutable and may be
// shared.
type BookmarkForm struct {
	plain, end [3][]byte // the object before, between and behind what is filled in
}

// newBookmarkForm takes the form from a bookmark's object. From a plain one the
// form of the one that ends the initial events can't be told.
func newBookmarkForm(raw []byte, f scanned) BookmarkForm {
	raw = append([]byte(nil), raw...)
	rv := span{f.rvStart - f.start, f.rvEnd - f.start}
	if !f.initialEventsEnd {
		return BookmarkForm{plain: around(raw, rv, span{})}
	}
	cut := f.annotations
	if f.annotationCount > 1 {
		cut = f.endAnnotation
	}
	cut.start -= f.start
	cut.end -= f.start
	if raw[cut.end] == ',' {
		cut.end++
	} else if raw[cut.start-1] == ',' {
		cut.start--
	}
	return BookmarkForm{plain: around(raw, rv, cut), end: around(raw, rv, span{})}
}

// around splits raw at the resourceVersion's digits and leaves out cut, which
// lies before or behind them.
func around(raw []byte, rv, cut span) [3][]byte {
	before, behind := raw[:rv.start:rv.start], raw[rv.end:]
	switch {
	case cut.end == 0:
		return [3][]byte{before, nil, behind}
	case cut.end <= rv.start:
		joined := append(append([]byte(nil), raw[:cut.start]...), raw[cut.end:rv.start]...)
		return [3][]byte{joined, nil, behind}
	}
	return [3][]byte{before, raw[rv.end:cut.start], raw[cut.end:]}
}

// HasPlain reports whether periodic bookmarks can be made.
func (f BookmarkForm) HasPlain() bool { return f.plain[0] != nil }

// HasEnd reports whether the bookmark that ends initial events can be made.
func (f BookmarkForm) HasEnd() bool { return f.end[0] != nil }

// Frame returns the bookmark for resourceVersion rv, with the annotation that
// ends initial events if end is true. The form must have it.
func (f BookmarkForm) Frame(rv uint64, end bool) Frame {
	parts := f.plain
	if end {
		parts = f.end
	}
	return newFrame(Bookmark, parts[0], strconv.AppendUint(nil, rv, 10), parts[1], parts[2])
}
