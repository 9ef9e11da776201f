package framing

import (
	"fmt"
	"io"
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

// String returns the encoding's name, for logs and metrics.
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "json"
	case Protobuf:
		return "protobuf"
	case CBOR:
		return "cbor"
	}
	return fmt.Sprintf("Encoding(%d)", uint8(e))
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
type Scanner interface {
	// Event reads one event of a watch stream, as an [EventReader] returns it. The result shares no
	// memory with event. After an error the stream can no longer be trusted.
	Event(event []byte) (Event, error)
	// Item reads one element of a list's items, as a [ListReader] returns it. In some lists only
	// the envelope names the type. There typeMeta adds it to the item ([ListForm.TypeMeta]), and
	// the result is what a watch would send. With typeMeta nil the result may only be inspected. It
	// shares no memory with item.
	Item(item, typeMeta []byte) (*Object, error)
}

// NewScanner returns a Scanner that extracts the given fields of each object, in this order, into
// [Object.Fields].
func NewScanner(e Encoding, fields []Field) Scanner {
	switch e {
	case Protobuf:
		return scanner{newProtobufScanner(fields)}
	case CBOR:
		return scanner{newCBORScanner(fields)}
	}
	return scanner{newJSONScanner(fields)}
}

// scanner is the [Scanner] of all encodings.
type scanner struct {
	reader interface {
		event(event []byte) (Event, error)
		item(raw, typeMeta []byte) (*Object, error)
	}
}

// Event implements [Scanner].
func (s scanner) Event(event []byte) (Event, error) {
	ev, err := s.reader.event(event)
	if err != nil {
		return Event{}, fmt.Errorf("read watch event: %w", err)
	}
	return ev, nil
}

// Item implements [Scanner].
func (s scanner) Item(raw, typeMeta []byte) (*Object, error) {
	o, err := s.reader.item(raw, typeMeta)
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

// EventReader splits a watch stream into its events. It has one buffer, which shrinks again after a
// large event. It is used by one goroutine at a time.
type EventReader interface {
	// Next returns the next event, which is valid until the next call. It returns io.EOF at the end
	// of the stream, io.ErrUnexpectedEOF if the stream ends within an event, and [ErrTooLong].
	Next() ([]byte, error)
}

// NewEventReader returns an EventReader of the stream in r.
func NewEventReader(e Encoding, r io.Reader) EventReader {
	return &eventReader{encoding: e, stream: stream{r: r}}
}

// ListReader reads a list from upstream item by item, in the memory of its largest item.
type ListReader interface {
	// Next returns the next item, which is valid until the next call. It returns io.EOF after the
	// last item, if the whole list was well formed.
	Next() ([]byte, error)
	// Metadata returns the list's metadata, once Next has returned io.EOF.
	Metadata() (ListMeta, error)
}

// NewListReader returns a reader of the list in r.
func NewListReader(e Encoding, r io.Reader) ListReader {
	switch e {
	case Protobuf:
		return &protobufListReader{stream: stream{r: r}}
	case CBOR:
		return &cborListReader{eventReader: eventReader{encoding: CBOR, stream: stream{r: r}}}
	}
	return newJSONListReader(r)
}
