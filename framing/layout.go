package framing

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// span is a range of bytes.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

func (s span) moved(by int) span { return span{s.start + by, s.end + by} }

// splice is a place at which an object differs from another one: other bytes, or none, instead of
// those of old.
type splice struct {
	old  span
	with []byte
}

func (s splice) grown() int { return len(s.with) - s.old.len() }

// grown is how many bytes longer the spliced object is.
func grown(splices []splice) (n int) {
	for _, s := range splices {
		n += s.grown()
	}
	return n
}

// spliceBuffer has room for one change, and spliced for the parts around it.
type (
	spliceBuffer [2]splice
	spliced      [5][]byte
)

// appendSpliced appends the parts of the spliced object to dst, from an offset in the whole one on.
// Splices before that are left out.
func appendSpliced(dst [][]byte, object []byte, from int, splices []splice) [][]byte {
	for _, s := range splices {
		if s.old.start < from {
			continue
		}
		for _, part := range [...][]byte{object[from:s.old.start], s.with} {
			if len(part) > 0 {
				dst = append(dst, part)
			}
		}
		from = s.old.end
	}
	if from < len(object) {
		dst = append(dst, object[from:])
	}
	return dst
}

// layout is the places of the parts of an object's bytes that can change.
type layout struct {
	rvStart, rvEnd int32 // the resourceVersion's digits
	item           int32 // the start of the list item, in JSON after its opening brace, in CBOR after its head
	itemEnd        int32 // the end of the list item

	managedStart, managedEnd int32 // metadata.managedFields; empty if there is none
	metadata                 int32 // the head of the metadata, in CBOR if there are managedFields
}

func (l layout) managed() span { return span{int(l.managedStart), int(l.managedEnd)} }

// moved returns the layout of the spliced object: everything behind a splice has moved.
func (l layout) moved(splices ...splice) layout {
	for _, s := range slices.Backward(splices) {
		for _, at := range []*int32{
			&l.rvStart, &l.rvEnd, &l.item, &l.itemEnd, &l.managedStart, &l.managedEnd, &l.metadata,
		} {
			if int(*at) >= s.old.end {
				*at += int32(s.grown())
			}
		}
	}
	return l
}

// at appends what gives an object resourceVersion rv to dst.
func (l layout) at(dst []splice, e Encoding, object []byte, rv uint64) []splice {
	digits := strconv.AppendUint(make([]byte, 1, 24), rv, 10)
	withLength := span{int(l.rvStart) - 1, int(l.rvEnd)}
	switch e {
	case Protobuf:
		digits[0] = byte(len(digits) - 1)
		return l.inMetadata(dst, object, splice{withLength, digits})
	case CBOR:
		digits[0] = majorBytes<<5 | byte(len(digits)-1)
		return append(dst, splice{withLength, digits})
	}
	return append(dst, splice{span{int(l.rvStart), int(l.rvEnd)}, digits[1:]})
}

// without appends what takes the bytes of cut, which are in its metadata, from an object to dst. In
// CBOR they are an entry of the map whose head is at in.
func (l layout) without(dst []splice, e Encoding, object []byte, cut span, in int) []splice {
	switch e {
	case Protobuf:
		return l.inMetadata(dst, object, splice{old: cut})
	case CBOR:
		dst = append(dst, fewerEntries(object, in, 1))
	}
	return append(dst, splice{old: cut})
}

// inMetadata appends some splices in a protobuf object's metadata to dst. The lengths of the metadata
// and of the object, which come before them, are written anew:
//
//	… 12 <raw> 0a <metadata> ┆ … splices … ┆ …
//	  └ item                 └ metadata
func (l layout) inMetadata(dst []splice, object []byte, splices ...splice) []splice {
	raw := mustOpen(object, int(l.item), tagRaw)
	metadata := mustOpen(object, raw.start, tagMetadata)
	metadataLen := metadata.len() + grown(splices)
	rawLen := raw.end - metadata.end + headerLen(metadataLen) + metadataLen
	headers := appendHeader(make([]byte, 0, 16), tagRaw, rawLen)
	headers = appendHeader(headers, tagMetadata, metadataLen)
	return append(append(dst, splice{span{int(l.item), metadata.start}, headers}), splices...)
}

// scanned is the result of one walk over an object. Offsets are into the input.
type scanned struct {
	start, end      int
	namespace, name string
	rv              uint64
	digits          span   // the resourceVersion's
	uidHash         uint64 // see Object.UIDHash
	replaced        bool   // in JSON; see ErrReplaced
	labels          map[string]string
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
