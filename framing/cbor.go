package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"
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
		return 0, 0, 0, errors.New("indefinite length")
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
	left uint64 // heads still to come; 1 at first
}

// length returns the length of the item at the start of b; 0 if it does not end within b.
func (e *itemEnd) length(b []byte) (n int, err error) {
	for e.left > 0 && e.at < len(b) {
		major, arg, size, err := itemHead(b[e.at:])
		if err != nil || size == 0 {
			return 0, err
		}
		e.at += size
		e.left--
		if major >= majorBytes && major <= majorMap && arg > MaxEvent {
			return 0, ErrTooLong
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
		if e.left > MaxEvent { // each takes at least one byte
			return 0, ErrTooLong
		}
	}
	switch {
	case e.at > MaxEvent:
		return 0, ErrTooLong
	case e.left > 0 || e.at > len(b):
		return 0, nil
	}
	return e.at, nil
}

// cborValues are the [values] of [CBOR].
type cborValues struct {
	stream
	left []uint64 // the entries or elements still to come of each map and array that was entered
	err  error
}

func (c *cborValues) reset(document []byte) {
	*c = cborValues{stream: stream{buf: document}, left: c.left[:0]}
}

func (c *cborValues) start() int { return c.at }

func (c *cborValues) offset() int { return c.at }

func (c *cborValues) fail(err error) {
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("byte %d: %w", c.taken, unexpectedEOF(err))
	}
}

func (c *cborValues) failed() error { return c.err }

func (c *cborValues) decode(raw []byte, v any) error { return decoding.Unmarshal(raw, v) }

func (c *cborValues) kind() jsontext.Kind {
	for c.err == nil && c.at == len(c.buf) {
		c.fail(c.more())
	}
	switch {
	case c.err != nil:
		return 0
	case c.buf[c.at] == null:
		return 'n'
	}
	return kinds[c.buf[c.at]>>5]
}

// kinds are those of the major types.
var kinds = [8]jsontext.Kind{majorBytes: '"', majorText: '"', majorArray: '[', majorMap: '{'}

func (c *cborValues) skip() { c.raw() }

func (c *cborValues) raw() []byte {
	if c.err != nil {
		return nil
	}
	end := itemEnd{left: 1}
	item, err := c.until(end.length)
	c.fail(err)
	return item
}

// open reads the head of an item, whose major type must be want, or of a null, which counts as 0.
func (c *cborValues) open(want byte) uint64 {
	for c.err == nil {
		major, arg, size, err := itemHead(c.buf[c.at:])
		isNull := major == null>>5 && arg == null&0x1f
		switch {
		case err == nil && size == 0:
			c.fail(c.more())
			continue
		case err == nil && !isNull && major != want && (major != majorText || want != majorBytes):
			err = fmt.Errorf("found major type %d, expected %d", major, want)
		case isNull:
			arg = 0
		}
		if c.fail(err); err == nil {
			c.at += size
			c.taken += int64(size)
			return arg
		}
	}
	return 0
}

// tag is that of self-described CBOR.
func (c *cborValues) tag() {
	if tag := c.open(majorTag); c.err == nil && tag != tagSelfDescribed {
		c.fail(fmt.Errorf("tag %d, expected %d", tag, tagSelfDescribed))
	}
}

// text reads a byte string or a text string.
func (c *cborValues) text() []byte {
	n := c.open(majorBytes)
	if n > MaxEvent {
		c.fail(io.ErrUnexpectedEOF)
	}
	if c.err != nil {
		return nil
	}
	text, err := c.take(int(n))
	c.fail(err)
	return text
}

func (c *cborValues) scalar() string {
	var value any
	if raw := c.raw(); c.err != nil || decoding.Unmarshal(raw, &value) != nil {
		return ""
	}
	switch value.(type) {
	case string, bool, int64, uint64, float64:
		return fmt.Sprint(value)
	}
	return ""
}

// version reads a byte string with a head of one byte.
func (c *cborValues) version() (rv uint64, digits span) {
	at := c.at
	text := c.text()
	rv, err := strconv.ParseUint(string(text), 10, 64)
	if c.err == nil && (err != nil || rv == 0 || len(text) > 20 || c.buf[at] != majorBytes<<5|byte(len(text))) {
		c.fail(fmt.Errorf("resourceVersion %.30q", text))
	}
	return rv, span{at + 1, c.at}
}

func (c *cborValues) enter() { c.left = append(c.left, c.open(majorMap)) }

func (c *cborValues) enterArray() { c.left = append(c.left, c.open(majorArray)) }

func (c *cborValues) next() (start int, name []byte, ok bool) {
	if !c.element() {
		return 0, nil, false
	}
	start = c.at
	name = c.text()
	return start, name, c.err == nil
}

func (c *cborValues) element() bool {
	last := len(c.left) - 1
	switch {
	case c.err != nil:
		return false
	case c.left[last] == 0:
		c.left = c.left[:last]
		return false
	}
	c.left[last]--
	return true
}

func (c *cborValues) end(what string) error {
	for c.err == nil && c.at == len(c.buf) {
		err := c.more()
		if err == io.EOF {
			return nil
		}
		c.fail(err)
	}
	c.fail(errors.New("data after the " + what))
	return c.err
}

// fewerEntries returns the splice of the head of a map, at an offset in an object, that has n entries
// less.
func fewerEntries(object []byte, at int, n uint64) splice {
	_, entries, size, _ := itemHead(object[at:]) // it has been read before
	return splice{span{at, at + size}, appendItemHead(make([]byte, 0, 9), majorMap, entries-n)}
}

// typeFirst appends what moves the type of a CBOR object to its front to dst. Maps come in any order,
// and a list item is then the rest of the object:
//
//	d9d9f7  <map>  kind apiVersion  ┆ the other entries
//	                                └ item
//
// In lists of built-in types only the envelope has kind and apiVersion. There typeMeta adds them.
func (s *objectScanner) typeFirst(dst []splice, input []byte, found *scanned, typeMeta []byte) []splice {
	_, entries, size, _ := itemHead(input[found.start:])
	found.item = found.start + size
	if len(s.types) == 0 && typeMeta != nil {
		entries += 2
	}
	s.head = appendItemHead(append(s.head[:0], selfDescribed...), majorMap, entries)
	if len(s.types) == 0 {
		s.head = append(s.head, typeMeta...)
	}
	dst = append(dst, splice{old: span{0, size}})
	for _, at := range s.types {
		s.head = append(s.head, input[at.start:at.end]...)
		dst = append(dst, splice{old: at.moved(-found.start)})
	}
	dst[0].with = s.head
	return dst
}
