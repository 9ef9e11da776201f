package framing

import "strconv"

// span is a range of bytes.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// layout is the places of the parts of an object's bytes that can change.
type layout struct {
	rvStart, rvEnd int32 // the resourceVersion's digits
	item           int32 // the start of the list item, in JSON after its opening brace, in CBOR after its head
	itemEnd        int32 // the end of the list item

	// metadata.managedFields, in JSON with one comma; empty if there is none.
	managedStart, managedEnd int32
	metadata                 int32 // the head of the metadata, in CBOR if there are managedFields
}

// at returns the parts of object with resourceVersion rv, and their layout.
func (l layout) at(e Encoding, object []byte, rv uint64) (layout, [][]byte) {
	digits := strconv.AppendUint(make([]byte, 1, 24), rv, 10)
	withLength := span{int(l.rvStart) - 1, int(l.rvEnd)}
	switch e {
	case Protobuf:
		digits[0] = byte(len(digits) - 1)
		return l.spliceProtobuf(object, withLength, digits)
	case CBOR:
		digits[0] = majorBytes<<5 | byte(len(digits)-1)
		return l.splice(object, withLength, digits)
	}
	return l.splice(object, span{int(l.rvStart), int(l.rvEnd)}, digits[1:])
}

// without returns object, which has layout l, without the bytes of cut, which are in its metadata.
func (l layout) without(e Encoding, object []byte, cut span) (layout, [][]byte) {
	if e == Protobuf {
		return l.spliceProtobuf(object, cut, nil)
	}
	return l.splice(object, cut, nil)
}

// splice returns the parts of object with the bytes of cut replaced, and their layout.
func (l layout) splice(object []byte, cut span, with []byte) (layout, [][]byte) {
	return l.moved(cut, len(with)-cut.len()), [][]byte{object[:cut.start], with, object[cut.end:]}
}

// spliceProtobuf is splice for bytes in a protobuf object's metadata. It also writes the lengths of
// the metadata and of the object anew, which come before them:
//
//	… 12 <raw> 0a <metadata> ┆ … cut … ┆ …
//	  └ item                 └ metadata
func (l layout) spliceProtobuf(object []byte, cut span, with []byte) (layout, [][]byte) {
	grown := len(with) - cut.len()
	old, headers := l.protobufHeaders(object, grown)
	l = l.moved(cut, grown).moved(old, len(headers)-old.len())
	return l, [][]byte{object[:old.start], headers, object[old.end:cut.start], with, object[cut.end:]}
}

// protobufHeaders returns the place of the headers of raw and of the metadata, which follow each
// other, and the headers for a metadata that has grown.
func (l layout) protobufHeaders(object []byte, grown int) (old span, headers []byte) {
	raw := mustOpen(object, int(l.item), tagRaw)
	metadata := mustOpen(object, raw.start, tagMetadata)
	metadataLen := metadata.len() + grown
	rawLen := raw.len() + grown + headerLen(metadataLen) - (metadata.start - raw.start)
	headers = appendHeader(make([]byte, 0, 16), tagRaw, rawLen)
	return span{int(l.item), metadata.start}, appendHeader(headers, tagMetadata, metadataLen)
}

// moved returns the layout after the bytes of cut have grown: everything after them has moved.
func (l layout) moved(cut span, grown int) layout {
	for _, at := range []*int32{
		&l.rvStart, &l.rvEnd, &l.item, &l.itemEnd, &l.managedStart, &l.managedEnd, &l.metadata,
	} {
		if int(*at) >= cut.end {
			*at += int32(grown)
		}
	}
	return l
}
