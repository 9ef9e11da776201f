package framing

import (
	"io"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// values reads JSON or CBOR value by value. It stops at the first error: after that it reads nothing,
// and finds no more members and elements. What it returns is valid until the next call.
type values interface {
	walk
	// reset begins with a document in memory.
	reset(document []byte)
	// tag reads what comes before an object that kube-apiserver encodes as a whole.
	tag()
	// raw reads a value.
	raw() []byte
	// version reads an object's resourceVersion, the etcd revision that orders the events of one
	// resource: a decimal uint64 in a string, greater than 0.
	version() (rv uint64, digits span)
	// decode makes a Go value of one that raw has returned.
	decode(raw []byte, v any) error
	fail(err error)
	failed() error
	// end returns the first error, or one if data follows what was read.
	end(what string) error
}

// walk is what a walk over the members of an object needs of values.
type walk interface {
	// kind returns the kind of the next value, which is 'n', '"', '{', '[', or any other for numbers
	// and booleans.
	kind() jsontext.Kind
	// skip, text and scalar read a value. A text is a string; null reads as "". A scalar is a value in
	// the form of a field selector; "" for null.
	skip()
	text() []byte
	scalar() string
	// enter reads the beginning of an object, and next the name of its next member. The caller then
	// reads or skips the member's value.
	enter()
	next() (start int, name []byte, ok bool)
	// enterArray reads the beginning of an array, and element reports whether it goes on.
	enterArray()
	element() bool
	// start is the offset of the next value, and offset that of the byte after the last one.
	start() int
	offset() int
}

// newValues returns the values of what is read from r, or nil for documents in memory.
func newValues(e Encoding, r io.Reader) values {
	if e == CBOR {
		return &cborValues{stream: stream{r: r}}
	}
	return newJSONValues(r)
}

// members reads an object. For each member it yields the offset and the name, and the caller then
// reads or skips the value.
func members(in walk) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		in.enter()
		for {
			start, name, ok := in.next()
			if !ok || !yield(start, name) {
				return
			}
		}
	}
}

// textAt reads up to a text and returns it; "" if there is none.
func textAt(in values, path ...string) []byte {
	for _, name := range members(in) {
		switch {
		case string(name) != path[0]:
			in.skip()
		case len(path) == 1:
			return in.text()
		default:
			return textAt(in, path[1:]...)
		}
	}
	return nil
}
