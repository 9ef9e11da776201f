package framing

import (
	"fmt"
	"slices"
	"strings"
)

// Encoding is how a server writes objects, lists and watch events. A client is sent everything in
// the encoding in which kube-apiserver sent it.
type Encoding uint8

// The encodings of the Kubernetes API that have streams
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources).
const (
	JSON Encoding = iota
	Protobuf
	CBOR
)

var encodings = [...]string{JSON: "json", Protobuf: "protobuf", CBOR: "cbor"}

// String returns the encoding's name, for logs and metrics.
func (e Encoding) String() string { return encodings[e] }

var mediaTypes = [...]string{
	JSON: "application/json", Protobuf: "application/vnd.kubernetes.protobuf", CBOR: "application/cbor"}

// MediaType returns the media type of the encoding.
func (e Encoding) MediaType() string { return mediaTypes[e] }

// EncodingOf returns the encoding of a body with this Content-Type. ok is false for one that has none of them.
func EncodingOf(contentType string) (e Encoding, ok bool) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	i := slices.Index(mediaTypes[:], mediaType)
	return Encoding(max(i, 0)), i >= 0
}

// LengthPrefix returns the number of bytes before each event of a stream that say how long it is.
// They are no part of the event where something else says so.
func (e Encoding) LengthPrefix() int {
	if e == Protobuf {
		return prefixLen
	}
	return 0
}

// Scanner reads watch events and list items of one kind. It reuses its buffers and may be used by
// one goroutine at a time.
type Scanner struct {
	reader interface {
		event(event []byte) (Event, error)
		item(raw, typeMeta []byte) (*Object, error)
	}
}

// NewScanner returns a Scanner that extracts the given fields of each object, in this order, into
// [Object.Fields].
func NewScanner(e Encoding, fields []Field) Scanner {
	if e == Protobuf {
		return Scanner{newProtobufScanner(fields)}
	}
	return Scanner{newObjectScanner(e, fields)}
}

// NewKnownScanner returns a Scanner for the bytes of events that another Scanner has read, and that nobody
// has changed since. In JSON it checks nothing again, which takes most of a Scanner's time. It panics if
// those bytes are no JSON.
func NewKnownScanner(e Encoding, fields []Field) Scanner {
	s := NewScanner(e, fields)
	if o, ok := s.reader.(*objectScanner); ok && e == JSON {
		o.in = new(sentJSON)
	}
	return s
}

// Event reads one event of a watch stream, as an [EventReader] returns it. The result shares no
// memory with event. After an error the stream can no longer be trusted.
func (s Scanner) Event(event []byte) (Event, error) {
	ev, err := s.reader.event(event)
	if err != nil {
		return Event{}, fmt.Errorf("read watch event: %w", err)
	}
	return ev, nil
}

// Item reads one element of a list's items, as [ReadList] yields it. In some lists only the
// envelope names the type. There typeMeta adds it to the item ([ListForm.TypeMeta]), and the result
// is what a watch would send. With typeMeta nil the result may only be inspected. It shares no memory
// with item.
func (s Scanner) Item(item, typeMeta []byte) (*Object, error) {
	o, err := s.reader.item(item, typeMeta)
	if err != nil {
		return nil, fmt.Errorf("read list item: %w", err)
	}
	return o, nil
}

// changed returns the event of an object.
func changed(t EventType, o *Object, err error) (Event, error) {
	if err != nil {
		return Event{}, fmt.Errorf("%s: %w", t, err)
	}
	return Event{Type: t, Object: o, ResourceVersion: o.ResourceVersion}, nil
}
