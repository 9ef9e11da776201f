package framing

import (
	"bytes"
	"errors"
)

// BookmarkForm is how kube-apiserver writes bookmarks of one kind: an empty object of the kind, in
// its encoder's form, with only the resourceVersion set. It is learned from the upstream's own
// bookmarks, because it depends on the kind's Go type and on the server's version.
//
// A form is immutable and may be shared.
type BookmarkForm struct {
	encoding   Encoding
	plain, end bookmark
}

// bookmark is a bookmark's object, at any resourceVersion; end's is nil if it is unknown.
type bookmark struct {
	object []byte
	layout layout
	table  span // of a Table: the digits of its own resourceVersion, before those of its row
}

// newBookmark returns the event of a bookmark's object. mark is the part of the input that marks the
// end of the initial events, in CBOR in the map whose head is at in. The bookmark with that mark also
// gives the plain form, but not the other way round.
func newBookmark(e Encoding, object []byte, f scanned, mark span, in int) (Event, error) {
	if f.rv == 0 {
		return Event{}, errors.New("BOOKMARK without resourceVersion")
	}
	whole := bookmark{object: bytes.Clone(object), layout: f.layout()}
	ev := Event{Type: Bookmark, ResourceVersion: f.rv, Form: BookmarkForm{encoding: e, plain: whole}}
	if f.initialEventsEnd {
		splices := whole.layout.without(nil, e, whole.object, mark.moved(-f.start), in-f.start)
		plain := bytes.Join(appendSpliced(nil, whole.object, 0, splices), nil)
		ev.InitialEventsEnd = true
		ev.Form.plain, ev.Form.end = bookmark{object: plain, layout: whole.layout.moved(splices...)}, whole
	}
	return ev, nil
}

// HasEnd reports whether the bookmark that ends initial events can be made.
func (f BookmarkForm) HasEnd() bool { return f.end.object != nil }

// Frame returns the bookmark for resourceVersion rv. If end is true, it has the annotation that
// ends initial events; HasEnd must be true.
func (f BookmarkForm) Frame(rv uint64, end bool) Frame {
	b := f.plain
	if end {
		b = f.end
	}
	splices := b.layout.at(nil, f.encoding, b.object, rv)
	if b.table.len() > 0 {
		splices = append([]splice{{b.table, splices[0].with}}, splices...)
	}
	return newFrame(f.encoding, Bookmark, appendSpliced(nil, b.object, 0, splices)...)
}
