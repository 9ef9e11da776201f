package framing

import (
	"fmt"
	"io"
)

// Encoding is how a server writes objects, lists and watch events. Everything a
// client is sent has the encoding in which kube-apiserver sent it to us.
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

// Scanner reads watch events and list items of one kind. It reuses its buffers
// and may be used by one goroutine at a time.
type Scanner interface {
	// Event reads one event of a watch stream, as an [EventReader] returns it.
	// The result shares no memory with event. Any error means that the stream can
	// no longer be trusted.
	Event(event []byte) (Event, error)
	// Item reads one element of a list's items, as a [ListReader] returns it.
	// Where lists leave an item's type to their envelope, typeMeta supplies it
	// ([ListForm.TypeMeta]), so that the result is what a watch would send; with
	// typeMeta nil the result serves to be looked at only. It shares no
	// memory with item.
	Item(item, typeMeta []byte) (*Object, error)
}

// NewScanner returns a Scanner that extracts the given fields of each object,
// in this order, into [Object.Fields].
func NewScanner(e Encoding, fields []Field) Scanner {
	switch e {
	case Protobuf:
		return newProtobufScanner(fields)
	case CBOR:
		return newCBORScanner(fields)
	}
	return newJSONScanner(fields)
}

// EventReader cuts a watch stream into its events. It holds one buffer, which
// shrinks again after a large event, and is used by one goroutine at a time.
type EventReader interface {
	// Next returns the next event, valid until the next call. It returns io.EOF at
	// the end of the stream, io.ErrUnexpectedEOF where the stream ends within an
	// event, and [ErrTooLong].
	Next() ([]byte, error)
}

// NewEventReader returns an EventReader of the stream in r.
func NewEventReader(e Encoding, r io.Reader) EventReader {
	switch e {
	case Protobuf:
		return newLengthReader(r)
	case CBOR:
		return newItemReader(r)
	}
	return newLineReader(r)
}

// ListReader reads a list that upstream sends, item by item, in the memory of
// its largest item.
type ListReader interface {
	// Next returns the next item, which is valid until the next call, and io.EOF
	// behind the last one, when the whole list has been read and was well formed.
	Next() ([]byte, error)
	// Metadata returns the list's metadata, once Next has returned io.EOF.
	Metadata() (ListMeta, error)
}

// NewListReader returns a reader of the list in r.
func NewListReader(e Encoding, r io.Reader) ListReader {
	switch e {
	case Protobuf:
		return newProtobufListReader(r)
	case CBOR:
		return newCBORListReader(r)
	}
	return newJSONListReader(r)
}
