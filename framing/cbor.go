package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// The major types of data items: the upper three bits of their heads (RFC 8949, section 3.1).
const (
	majorNumber = 0 // not negative
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
)

const (
	// selfDescribed is the head of the tag that begins everything that kube-apiserver writes, and
	// again an event's object (RFC 8949, section 3.4.6;
	// k8s.io/apimachinery/pkg/runtime/serializer/cbor).
	selfDescribed    = "\xd9\xd9\xf7"
	tagSelfDescribed = 55799

	null = 0xf6
)

// decoding decodes the few items that become Go values. kube-apiserver writes all strings as byte
// strings, including names.
var decoding = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		ByteStringToString:    cbor.ByteStringToStringAllowedWithExpectedLaterEncoding,
		DefaultByteStringType: reflect.TypeFor[string](),
		DefaultMapType:        reflect.TypeFor[map[string]any](),
		FieldNameByteString:   cbor.FieldNameByteStringAllowed,
		FieldNameMatching:     cbor.FieldNameMatchingCaseSensitive,
		IndefLength:           cbor.IndefLengthForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

var errIndefinite = errors.New("indefinite length")

// itemHead reads the head of the data item at the start of b: its major type and its argument. The
// argument is a number, the length of a string, a number of elements or entries, or a tag. size is
// the head's length, 0 if b ends within it. Indefinite lengths are an error, because kube-apiserver
// writes none.
func itemHead(b []byte) (major byte, arg uint64, size int, err error) {
	if len(b) == 0 {
		return 0, 0, 0, nil
	}
	major, info := b[0]>>5, b[0]&0x1f
	switch {
	case info < 24:
		return major, uint64(info), 1, nil
	case info == 31:
		return 0, 0, 0, errIndefinite
	case info > 27:
		return 0, 0, 0, fmt.Errorf("head %02x", b[0])
	}
	size = 1 + 1<<(info-24)
	if len(b) < size {
		return 0, 0, 0, nil
	}
	for _, c := range b[1:size] {
		arg = arg<<8 | uint64(c)
	}
	return major, arg, size, nil
}

// appendItemHead appends the head of a data item.
func appendItemHead(dst []byte, major byte, arg uint64) []byte {
	switch major <<= 5; {
	case arg < 24:
		return append(dst, major|byte(arg))
	case arg <= math.MaxUint8:
		return append(dst, major|24, byte(arg))
	case arg <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), arg)
}

// appendItems appends strings.
func appendItems(dst []byte, texts ...string) []byte {
	for _, s := range texts {
		dst = append(appendItemHead(dst, majorBytes, uint64(len(s))), s...)
	}
	return dst
}

// itemEnd finds the end of a data item while more and more of its bytes arrive. All lengths are
// definite. So it needs no stack of enclosing items, only the number of items that are still to
// come.
type itemEnd struct {
	at   int    // offset of the next head
	left uint64 // heads still to come
}

func newItemEnd() itemEnd { return itemEnd{left: 1} }

// find reports whether the item at the start of b ends within b. If so, it ends at e.at.
func (e *itemEnd) find(b []byte) (found bool, err error) {
	for e.left > 0 && e.at < len(b) {
		major, arg, size, err := itemHead(b[e.at:])
		if err != nil || size == 0 {
			return false, err
		}
		e.at += size
		e.left--
		if major >= majorBytes && major <= majorMap && arg > MaxEvent {
			return false, ErrTooLong
		}
		switch major {
		case majorBytes, majorText:
			e.at += int(arg)
		case majorArray:
			e.left += arg
		case majorMap:
			e.left += 2 * arg
		case majorTag:
			e.left++
		}
		if e.left > MaxEvent {
			return false, ErrTooLong // each takes at least one byte
		}
	}
	return e.left == 0 && e.at <= len(b), nil
}

// itemCursor walks over consecutive data items in input. It stops at the first unexpected item and
// sets err.
type itemCursor struct {
	input []byte
	at    int
	err   error
}

func (c *itemCursor) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("byte %d: %w", c.at, err)
	}
}

// skip reads an item and returns its bytes.
func (c *itemCursor) skip() []byte {
	if c.err != nil {
		return nil
	}
	end := newItemEnd()
	found, err := end.find(c.input[c.at:])
	if err == nil && !found {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		c.fail(err)
		return nil
	}
	item := c.input[c.at : c.at+end.at]
	c.at += end.at
	return item
}

// isNull reports whether null is next.
func (c *itemCursor) isNull() bool {
	return c.err == nil && c.at < len(c.input) && c.input[c.at] == null
}

// open reads an item's head. Its major type must be want.
func (c *itemCursor) open(want byte) (arg uint64) {
	if c.err != nil {
		return 0
	}
	major, arg, size, err := itemHead(c.input[c.at:])
	switch {
	case err != nil:
		c.fail(err)
	case size == 0:
		c.fail(io.ErrUnexpectedEOF)
	case major != want:
		c.fail(fmt.Errorf("found major type %d, expected %d", major, want))
	default:
		c.at += size
		return arg
	}
	return 0
}

// selfDescribed reads the tag before an object that kube-apiserver encodes as a whole.
func (c *itemCursor) selfDescribed() {
	if tag := c.open(majorTag); c.err == nil && tag != tagSelfDescribed {
		c.fail(fmt.Errorf("tag %d, expected %d", tag, tagSelfDescribed))
	}
}

// text reads a byte string or a text string; null reads as "".
func (c *itemCursor) text() []byte {
	if c.isNull() {
		c.at++
		return nil
	}
	major := byte(majorBytes)
	if c.at < len(c.input) && c.input[c.at]>>5 == majorText {
		major = majorText
	}
	n := c.open(major)
	if c.err == nil && n > uint64(len(c.input)-c.at) {
		c.fail(io.ErrUnexpectedEOF)
	}
	if c.err != nil {
		return nil
	}
	c.at += int(n)
	return c.input[c.at-int(n) : c.at]
}

// entries reads a map. For each entry it yields the offset and the name, and the caller then reads
// or skips the value. null reads as an empty map.
func (c *itemCursor) entries() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if c.isNull() {
			c.at++
			return
		}
		for n := c.open(majorMap); n > 0 && c.err == nil; n-- {
			start := c.at
			if name := c.text(); c.err != nil || !yield(start, name) {
				return
			}
		}
	}
}
