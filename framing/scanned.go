package framing

import (
	"errors"
	"fmt"
)

// scanned is the result of one walk over an object. Offsets are into the input.
type scanned struct {
	start, end      int
	namespace, name string
	rv              uint64
	digits          span   // the resourceVersion's
	uidHash         uint64 // see Object.UIDHash
	replaced        bool   // in JSON; see ErrReplaced
	labels          map[string]string
	hasKind         bool // in JSON: the object names its type
	item, itemEnd   int  // see layout
	managed         span // managedFields, with its name

	initialEventsEnd bool
	endAnnotation    span // the InitialEventsEnd annotation
	annotations      span // in JSON and CBOR: the annotations member, with its name
	annotationCount  int  // in JSON and CBOR: the number of annotations

	metadataMap, annotationsMap int // in CBOR
}

// layout returns the object's layout, with offsets into the object's own bytes.
func (f scanned) layout() layout {
	l := layout{
		rvStart: int32(f.digits.start - f.start),
		rvEnd:   int32(f.digits.end - f.start),
		item:    int32(f.item - f.start),
		itemEnd: int32(f.itemEnd - f.start),
	}
	if f.managed.len() > 0 {
		l.managedStart, l.managedEnd = int32(f.managed.start-f.start), int32(f.managed.end-f.start)
		l.metadata = int32(f.metadataMap - f.start)
	}
	return l
}

// errSecondManaged is returned for an object with two managedFields, which no server writes.
var errSecondManaged = fmt.Errorf("managedFields: %w", errSecond)

// identify returns the object that was found, still without its bytes.
func (f scanned) identify(e Encoding, fields *fieldValues) (*Object, error) {
	if f.name == "" {
		return nil, errors.New("object without metadata.name")
	}
	if f.rv == 0 {
		return nil, errors.New("object without metadata.resourceVersion")
	}
	o := &Object{
		Key:             f.name,
		ResourceVersion: f.rv,
		Labels:          f.labels,
		Fields:          fields.chosen(),
		uidHash:         f.uidHash,
		encoding:        e,
		layout:          f.layout(),
	}
	if f.namespace != "" {
		o.Key = f.namespace + "/" + f.name
		o.Namespace = o.Key[:len(f.namespace)]
	}
	o.Name = o.Key[len(o.Key)-len(f.name):]
	return o, nil
}
