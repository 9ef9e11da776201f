package framing

import (
	"bytes"
	"strconv"
)

// EventType is the type of a watch event.
type EventType uint8

// The event types of the watch API (k8s.io/apimachinery/pkg/watch, type EventType).
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
	Error
)

var eventTypes = [...]string{
	Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED", Bookmark: "BOOKMARK", Error: "ERROR",
}

// eventTypeOf returns the type with this name on the wire; 0 if there is none.
func eventTypeOf(name string) EventType {
	for t := Added; int(t) < len(eventTypes); t++ {
		if eventTypes[t] == name {
			return t
		}
	}
	return 0
}

// String returns the type's name on the wire.
func (t EventType) String() string {
	if int(t) < len(eventTypes) && eventTypes[t] != "" {
		return eventTypes[t]
	}
	return "EventType(" + strconv.Itoa(int(t)) + ")"
}

// Frame is one watch event ready to be written: a complete HTTP/1.1 chunk that holds one event of a
// stream of its encoding.
//
// The chunk is Head followed by Body. Head is empty when the chunk is contiguous. Both are
// immutable and shared by all clients. They stay valid as long as they are referenced.
type Frame struct {
	Head, Body []byte
}

// Len is the number of bytes that the frame takes on the wire.
func (f Frame) Len() int { return len(f.Head) + len(f.Body) }

// Start returns the place of the frame's first byte, which is in no other frame. So it tells frames
// apart: those that start at the same place are the same. The frame must not be empty.
func (f Frame) Start() *byte {
	if len(f.Head) > 0 {
		return &f.Head[0]
	}
	return &f.Body[0]
}

// Payload appends the event without its chunk framing to dst and returns the extended slice.
func (f Frame) Payload(dst []byte) []byte {
	first, rest := f.payload()
	return append(append(dst, first...), rest...)
}

// payload returns the two parts of the event without its chunk framing.
func (f Frame) payload() (first, rest []byte) {
	rest = f.Body[:len(f.Body)-len(crlf)]
	if len(f.Head) == 0 {
		return nil, rest[bytes.IndexByte(rest, '\n')+1:]
	}
	return f.Head[bytes.IndexByte(f.Head, '\n')+1:], rest
}

const (
	crlf       = "\r\n"
	typeOpen   = `{"type":"`
	objectOpen = `","object":`
	eventEnd   = "}\n"

	// In CBOR, a map of two entries.
	typeEntry   = selfDescribed + "\xa2\x44type"
	objectEntry = "\x46object"

	// LastChunk ends a chunked body without trailers (RFC 9112, section 7.1).
	LastChunk = "0\r\n\r\n"
)

// frameTail returns the bytes after the object's bytes.
func frameTail(e Encoding) string {
	if e == JSON {
		return eventEnd + crlf
	}
	return crlf
}

// appendHead appends the chunk size and the beginning of the event, up to the object's bytes:
//
//	<size in hex> CRLF {"type":"ADDED","object":
func appendHead(dst []byte, e Encoding, t EventType, objectLen int) []byte {
	var buf [64]byte
	opening := appendOpening(buf[:0], e, t, objectLen)
	size := len(opening) + objectLen + len(frameTail(e)) - len(crlf)
	dst = strconv.AppendInt(dst, int64(size), 16)
	return append(append(dst, crlf...), opening...)
}

// heads has room for what comes before an object in two events.
type heads [128]byte

// appendOpening appends the beginning of an event without its chunk size.
func appendOpening(dst []byte, e Encoding, t EventType, objectLen int) []byte {
	switch e {
	case Protobuf:
		return appendProtobufOpening(dst, t, objectLen)
	case CBOR:
		return append(appendItems(append(dst, typeEntry...), t.String()), objectEntry...)
	}
	return append(append(append(dst, typeOpen...), t.String()...), objectOpen...)
}

// lengthOf is the number of bytes of parts.
func lengthOf(parts [][]byte) (n int) {
	for _, part := range parts {
		n += len(part)
	}
	return n
}

// layOut returns head, then the object and the end of an event, in one allocation.
func layOut(e Encoding, head []byte, object [][]byte) []byte {
	buf := make([]byte, 0, len(head)+lengthOf(object)+len(frameTail(e)))
	buf = append(buf, head...)
	for _, part := range object {
		buf = append(buf, part...)
	}
	return append(buf, frameTail(e)...)
}

// newFrame frames an object as an event of the given type.
func newFrame(e Encoding, t EventType, object ...[]byte) Frame {
	var buf heads
	return Frame{Body: layOut(e, appendHead(buf[:0], e, t, lengthOf(object)), object)}
}

// ErrorFrame frames a Status of the given encoding as an ERROR event, after which a watch ends. It
// drops a trailing newline of a JSON status.
func ErrorFrame(e Encoding, status []byte) Frame {
	if n := len(status); e == JSON && n > 0 && status[n-1] == '\n' {
		status = status[:n-1]
	}
	return newFrame(e, Error, status)
}
