package framing

import "bytes"

// BookmarkForm is how kube-apiserver writes bookmarks of one kind: an empty
// object of the kind in its encoder's form, with nothing set but the
// resourceVersion. It is learned from the upstream's own bookmarks, because the
// form depends on the kind's Go type and on the server's version.
//
// The zero BookmarkForm is an unknown form. A form is immutable and may be
// shared.
type BookmarkForm struct {
	encoding   Encoding
	plain, end bookmark
}

// bookmark is a bookmark's object, at some resourceVersion; nil if it is unknown.
type bookmark struct {
	object []byte
	layout layout
}

// newBookmarkForm takes the form from a bookmark's object. mark is what of the
// input makes it the end of the initial events. From a plain one the form of
// the one that ends the initial events can't be told.
func newBookmarkForm(e Encoding, object []byte, f scanned, mark span) BookmarkForm {
	whole := bookmark{bytes.Clone(object), f.layout()}
	if !f.initialEventsEnd {
		return BookmarkForm{encoding: e, plain: whole}
	}
	at, parts := whole.layout.without(e, whole.object, span{mark.start - f.start, mark.end - f.start})
	return BookmarkForm{encoding: e, plain: bookmark{bytes.Join(parts, nil), at}, end: whole}
}

// endMember returns what in a JSON bookmark is to be left out of one that does
// not end the initial events: the annotation, or all if there is no other, with
// a comma.
func (f scanned) endMember(input []byte) span {
	if !f.initialEventsEnd {
		return span{}
	}
	cut := f.annotations
	if f.annotationCount > 1 {
		cut = f.endAnnotation
	}
	if input[cut.end] == ',' {
		cut.end++
	} else if input[cut.start-1] == ',' {
		cut.start--
	}
	return cut
}

// HasPlain reports whether periodic bookmarks can be made.
func (f BookmarkForm) HasPlain() bool { return f.plain.object != nil }

// HasEnd reports whether the bookmark that ends initial events can be made.
func (f BookmarkForm) HasEnd() bool { return f.end.object != nil }

// Frame returns the bookmark for resourceVersion rv, with the annotation that
// ends initial events if end is true. The form must have it.
func (f BookmarkForm) Frame(rv uint64, end bool) Frame {
	b := f.plain
	if end {
		b = f.end
	}
	_, parts := b.layout.at(f.encoding, b.object, rv)
	return newFrame(f.encoding, Bookmark, parts...)
}
