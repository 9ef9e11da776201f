package framing

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The frame around every object in protobuf
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go). It ends with runtime.Unknown's
// contentEncoding and contentType, which are always empty and always written.
const (
	magic      = "k8s\x00"
	unknownEnd = "\x1a\x00\x22\x00"
)

// The tags of the fields that are read and written here: number<<3 | wire type.
const (
	tagEventType   = 1<<3 | byte(protowire.BytesType) // WatchEvent.type
	tagEventObject = 2<<3 | byte(protowire.BytesType) // WatchEvent.object
	tagExtension   = 1<<3 | byte(protowire.BytesType) // RawExtension.raw

	tagTypeMeta   = 1<<3 | byte(protowire.BytesType) // Unknown.typeMeta
	tagAPIVersion = 1<<3 | byte(protowire.BytesType) // TypeMeta.apiVersion
	tagKind       = 2<<3 | byte(protowire.BytesType) // TypeMeta.kind
	tagRaw        = 2<<3 | byte(protowire.BytesType) // Unknown.raw
	tagItem       = tagRaw                           // of any list

	tagMetadata = 1<<3 | byte(protowire.BytesType) // of any object and list

	tagSelfLink            = 1<<3 | byte(protowire.BytesType)  // ListMeta.selfLink
	tagListResourceVersion = 2<<3 | byte(protowire.BytesType)  // ListMeta.resourceVersion
	tagContinue            = 3<<3 | byte(protowire.BytesType)  // ListMeta.continue
	tagRemainingItemCount  = 4<<3 | byte(protowire.VarintType) // ListMeta.remainingItemCount
	tagShardInfo           = 5<<3 | byte(protowire.BytesType)  // ListMeta.shardInfo
	tagShardSelector       = 1<<3 | byte(protowire.BytesType)  // ShardInfo.selector
)

// headerLen is the number of bytes that appendHeader appends.
func headerLen(n int) int { return 1 + protowire.SizeVarint(uint64(n)) }

// appendHeader appends the tag and length of a field of n bytes.
func appendHeader(dst []byte, tag byte, n int) []byte {
	return protowire.AppendVarint(append(dst, tag), uint64(n))
}

// appendString appends a field that holds s.
func appendString(dst []byte, tag byte, s string) []byte {
	return append(appendHeader(dst, tag, len(s)), s...)
}

// prefixLen is the number of bytes of an event's length prefix
// (k8s.io/apimachinery/pkg/util/framer).
const prefixLen = 4

// appendProtobufOpening appends the beginning of an event, up to the object's bytes:
//
//	<length, 4 bytes> 0a <type> 12 <length> 0a <length>
func appendProtobufOpening(dst []byte, t EventType, objectLen int) []byte {
	event := appendString(append(dst, make([]byte, prefixLen)...), tagEventType, t.String())
	event = appendHeader(event, tagEventObject, headerLen(objectLen)+objectLen)
	event = appendHeader(event, tagExtension, objectLen)
	binary.BigEndian.PutUint32(event[len(dst):], uint32(len(event)-len(dst)-prefixLen+objectLen))
	return event
}

// open reads the header of the field at offset at, in a message that ends at end. It returns the
// place of the field's bytes. The header must be exactly as appendHeader writes it.
func open(input []byte, at, end int, tag byte) (span, error) {
	if at >= end {
		return span{}, fmt.Errorf("byte %d: message ends, expected tag %02x", at, tag)
	}
	if input[at] != tag {
		return span{}, fmt.Errorf("byte %d: found tag %02x, expected %02x", at, input[at], tag)
	}
	n, size := protowire.ConsumeVarint(input[at+1 : end])
	if size < 0 {
		return span{}, fmt.Errorf("byte %d: %w", at+1, protowire.ParseError(size))
	}
	if size != protowire.SizeVarint(n) {
		return span{}, fmt.Errorf("byte %d: length %d takes %d bytes", at+1, n, size)
	}
	start := at + 1 + size
	if n > uint64(end-start) {
		return span{}, fmt.Errorf("byte %d: length %d ends past the message", at+1, n)
	}
	return span{start, start + int(n)}, nil
}

// openLast is open for the last field of a message.
func openLast(input []byte, at, end int, tag byte) (span, error) {
	s, err := open(input, at, end, tag)
	if err == nil && s.end != end {
		err = fmt.Errorf("byte %d: message continues", s.end)
	}
	return s, err
}

// mustOpen is open for bytes that have been read before.
func mustOpen(input []byte, at int, tag byte) span {
	s, err := open(input, at, len(input), tag)
	if err != nil {
		panic(err)
	}
	return s
}

// unknown is the places of the parts of a runtime.Unknown after its magic.
type unknown struct {
	apiVersion, kind span
	item             int  // offset of raw's tag
	raw              span // the object, without its type
}

// openUnknown splits the bytes of one object, which must be in the form that kube-apiserver writes:
//
//	k8s\0 0a <TypeMeta> 12 <raw> 1a 00 22 00
func openUnknown(input []byte, at span) (u unknown, err error) {
	if object := input[at.start:at.end]; len(object) < len(magic) || string(object[:len(magic)]) != magic {
		return u, fmt.Errorf("byte %d: no k8s\\0 before the object", at.start)
	}
	typeMeta, err := open(input, at.start+len(magic), at.end, tagTypeMeta)
	if err != nil {
		return u, err
	}
	if u.apiVersion, u.kind, err = openTypeMeta(input, typeMeta); err != nil {
		return u, err
	}
	u.item = typeMeta.end
	if u.raw, err = open(input, u.item, at.end, tagRaw); err != nil {
		return u, err
	}
	if string(input[u.raw.end:at.end]) != unknownEnd {
		return u, fmt.Errorf("byte %d: found % .8x after the object, expected % x",
			u.raw.end, input[u.raw.end:at.end], unknownEnd)
	}
	return u, nil
}

func openTypeMeta(input []byte, at span) (apiVersion, kind span, err error) {
	if apiVersion, err = open(input, at.start, at.end, tagAPIVersion); err == nil {
		kind, err = openLast(input, apiVersion.end, at.end, tagKind)
	}
	return apiVersion, kind, err
}

// protobufTypeMeta returns the field of a runtime.Unknown that names the type.
func protobufTypeMeta(apiVersion, kind string) []byte {
	typeMeta := appendString(nil, tagAPIVersion, apiVersion)
	typeMeta = appendString(typeMeta, tagKind, kind)
	return append(appendHeader(nil, tagTypeMeta, len(typeMeta)), typeMeta...)
}

// cursor walks over the fields of a message in input, in the order in which they come:
//
//	c := newCursor(input, message)
//	for c.next() {
//		switch c.number {
//
// After next has returned false, err is nil if the message was read to its end.
type cursor struct {
	input   []byte
	at, end int // the rest of the message
	err     error

	// The field that next has read.
	number protowire.Number
	typ    protowire.Type
	field  span   // with its tag
	value  span   // without its tag, and for BytesType without its length
	varint uint64 // for VarintType
}

func newCursor(input []byte, message span) cursor {
	return cursor{input: input, at: message.start, end: message.end}
}

// next reads the next field.
func (c *cursor) next() bool {
	if c.err != nil || c.at >= c.end {
		return false
	}
	var n int
	c.number, c.typ, n = protowire.ConsumeTag(c.input[c.at:c.end])
	if n < 0 {
		return c.fail(protowire.ParseError(n))
	}
	c.field.start = c.at
	rest := c.input[c.at+n : c.end]
	c.value.start = c.at + n
	switch c.typ {
	case protowire.BytesType:
		var length uint64
		if length, n = protowire.ConsumeVarint(rest); n >= 0 {
			if length > uint64(len(rest)-n) {
				return c.fail(fmt.Errorf("length %d ends past the message", length))
			}
			c.value.start += n
			n = int(length)
		}
	case protowire.VarintType:
		c.varint, n = protowire.ConsumeVarint(rest)
	default:
		n = protowire.ConsumeFieldValue(c.number, c.typ, rest)
	}
	if n < 0 {
		return c.fail(protowire.ParseError(n))
	}
	c.value.end = c.value.start + n
	c.field.end = c.value.end
	c.at = c.field.end
	return true
}

// is reports whether the field has wire type typ. If not, the walk ends.
func (c *cursor) is(typ protowire.Type) bool {
	if c.typ == typ {
		return true
	}
	c.at = c.field.start
	return c.fail(fmt.Errorf("field %d: wrong wire type", c.number))
}

// fail ends the walk at the current field.
func (c *cursor) fail(err error) bool {
	c.err = fmt.Errorf("byte %d: %w", c.at, err)
	return false
}

// bytes returns the value of a field of BytesType.
func (c *cursor) bytes() []byte { return c.input[c.value.start:c.value.end] }

// textBytes returns the value of a string field as a part of the input.
func (c *cursor) textBytes() []byte {
	if !c.is(protowire.BytesType) {
		return nil
	}
	return c.bytes()
}

// text returns the value of a string field.
func (c *cursor) text() string { return string(c.textBytes()) }
