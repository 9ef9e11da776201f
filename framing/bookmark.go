package framing

import (
	"bytes"
	"errors"
)

// BookmarkForm is how kube-apiserver writes bookmarks of one kind: an empty object of the kind, in
// its encoder's form, with only the resourceVersion set. It is learned from the upstream's own
// bookmarks, because it depends on the kind's Go type and on the server's version.
//
// The zero BookmarkForm is an unknown form. A form is immutable and may be shared.
type BookmarkForm struct {
	encoding   Encoding
	plain, end bookmark
}

// bookmark is a bookmark's object, at any resourceVersion; nil if it is unknown.
type bookmark struct {
	object []byte
	layout layout
	table  span // of a Table: the digits of its own resourceVersion, before those of its row
}

// newBookmark returns the event of a bookmark's object; see newBookmarkForm.
func newBookmark(e Encoding, object []byte, f scanned, mark span) (Event, error) {
	if f.rv == 0 {
		return Event{}, errors.New("BOOKMARK without resourceVersion")
	}
	form := newBookmarkForm(e, object, f, mark)
	return Event{Type: Bookmark, ResourceVersion: f.rv, InitialEventsEnd: f.initialEventsEnd, Form: form}, nil
}

// newBookmarkForm takes the form from a bookmark's object. mark is the part of the input that marks
// the end of the initial events. The bookmark with that mark also gives the plain form, but not the
// other way round.
func newBookmarkForm(e Encoding, object []byte, f scanned, mark span) BookmarkForm {
	whole := bookmark{object: bytes.Clone(object), layout: f.layout()}
	if !f.initialEventsEnd {
		return BookmarkForm{encoding: e, plain: whole}
	}
	at, parts := whole.layout.without(e, whole.object, span{mark.start - f.start, mark.end - f.start})
	return BookmarkForm{encoding: e, plain: bookmark{object: bytes.Join(parts, nil), layout: at}, end: whole}
}

// endMember returns the part to cut from a JSON bookmark to get a plain one: the annotation, or the
// whole member if there is no other annotation, with one comma.
func (f scanned) endMember(input []byte) span {
	if !f.initialEventsEnd {
		return span{}
	}
	cut := f.annotations
	if f.annotationCount > 1 {
		cut = f.endAnnotation
	}
	return withComma(input, cut)
}

// HasPlain reports whether periodic bookmarks can be made.
func (f BookmarkForm) HasPlain() bool { return f.plain.object != nil }

// HasEnd reports whether the bookmark that ends initial events can be made.
func (f BookmarkForm) HasEnd() bool { return f.end.object != nil }

// Frame returns the bookmark for resourceVersion rv. If end is true, it has the annotation that
// ends initial events. The form must be known.
func (f BookmarkForm) Frame(rv uint64, end bool) Frame {
	b := f.plain
	if end {
		b = f.end
	}
	_, parts := b.layout.at(f.encoding, b.object, rv)
	if b.table.len() > 0 {
		head, digits := parts[0], parts[1]
		parts = append([][]byte{head[:b.table.start], digits, head[b.table.end:]}, parts[1:]...)
	}
	return newFrame(f.encoding, Bookmark, parts...)
}
