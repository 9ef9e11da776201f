package framing

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protobufScanner is the [Scanner] of [Protobuf]. It reads only the fields that it needs. Around an
// object it accepts only the exact form that kube-apiserver writes. So everything that it accepts
// can be written again.
type protobufScanner struct {
	fields fieldValues
	paths  mask
	walks  int
}

func newProtobufScanner(fields []Field) *protobufScanner {
	s := &protobufScanner{fields: fieldValues{fields: fields}}
	for i, f := range fields {
		for _, path := range f.Numbers {
			s.fields.add(&s.paths, i, numbers(path))
		}
	}
	return s
}

// event reads an event without its length prefix.
func (s *protobufScanner) event(event []byte) (Event, error) {
	typ, err := open(event, 0, len(event), tagEventType)
	if err != nil {
		return Event{}, err
	}
	extension, err := openLast(event, typ.end, len(event), tagEventObject)
	if err != nil {
		return Event{}, err
	}
	object, err := openLast(event, extension.start, extension.end, tagExtension)
	if err != nil {
		return Event{}, err
	}
	u, err := openUnknown(event, object)
	if err != nil {
		return Event{}, err
	}
	switch t := eventTypeOf(string(event[typ.start:typ.end])); t {
	case Added, Modified, Deleted, Bookmark:
		found, err := s.object(event, u.raw)
		if err != nil {
			return changed(t, nil, err)
		}
		whole := event[object.start:object.end]
		found.start, found.item, found.itemEnd = object.start, u.item, u.raw.end
		if t == Bookmark {
			return newBookmark(Protobuf, whole, found, found.endAnnotation, 0)
		}
		o, err := found.identify(Protobuf, &s.fields)
		if err == nil {
			o.frame(t, whole)
		}
		return changed(t, o, err)
	case Error:
		status := new(metav1.Status)
		if err := status.Unmarshal(event[u.raw.start:u.raw.end]); err != nil {
			return Event{}, fmt.Errorf("ERROR: %w", err)
		}
		return Event{Type: Error, Status: status}, nil
	}
	return Event{}, fmt.Errorf("unknown type %.20q", event[typ.start:typ.end])
}

// item reads an item, which is what raw holds in a watch event.
func (s *protobufScanner) item(raw, typeMeta []byte) (*Object, error) {
	found, err := s.object(raw, span{0, len(raw)})
	if err != nil {
		return nil, err
	}
	header := appendHeader(make([]byte, 0, 8), tagRaw, len(raw))
	found.item, found.itemEnd = -len(header), len(raw)
	found.start = found.item - len(typeMeta) - len(magic)
	o, err := found.identify(Protobuf, &s.fields)
	if err != nil {
		return nil, err
	}
	o.frame(Added, []byte(magic), typeMeta, header, raw, []byte(unknownEnd))
	return o, nil
}

// object reads an API object without its type: its metadata, which must come first, and the values
// of the fields.
func (s *protobufScanner) object(input []byte, raw span) (scanned, error) {
	s.fields.reset()
	metadata, err := open(input, raw.start, raw.end, tagMetadata)
	if err != nil {
		return scanned{}, err
	}
	found, err := s.objectMeta(input, metadata)
	if err != nil {
		return scanned{}, err
	}
	return found, s.walk(input, span{metadata.end, raw.end}, &s.paths, true)
}

// The fields of ObjectMeta (k8s.io/apimachinery/pkg/apis/meta/v1, generated.proto) that we read.
const (
	metaName            = 1
	metaNamespace       = 3
	metaUID             = 5
	metaResourceVersion = 6
	metaLabels          = 11
	metaAnnotations     = 12
	metaManagedFields   = 17
)

func (s *protobufScanner) objectMeta(input []byte, message span) (scanned, error) {
	f := scanned{uidHash: hashOfNothing}
	texts := &s.fields.texts
	texts.beginLabels()
	c := newCursor(input, message)
	for c.next() {
		switch c.number {
		case metaName:
			f.name = c.text()
		case metaNamespace:
			f.namespace = c.text()
		case metaUID:
			f.uidHash = HashOf(c.textBytes())
		case metaResourceVersion:
			readResourceVersion(&c, &f)
		case metaLabels:
			if key, value := mapEntry(&c); c.err == nil {
				texts.addLabel(texts.text(key), texts.text(value))
			}
		case metaAnnotations:
			if key, value := mapEntry(&c); c.err == nil && string(key) == InitialEventsEnd {
				if f.endAnnotation.end != 0 {
					c.fail(errors.New("second " + InitialEventsEnd))
				}
				f.initialEventsEnd = string(value) == "true"
				f.endAnnotation = c.field
			}
		case metaManagedFields:
			noteManagedFields(&c, &f)
		}
	}
	f.labels = texts.madeLabels()
	return f, c.err
}

// noteManagedFields notes one of the elements of managedFields, which follow each other.
func noteManagedFields(c *cursor, f *scanned) {
	switch {
	case !c.is(protowire.BytesType):
	case f.managed.len() == 0:
		f.managed = c.field
	case f.managed.end == c.field.start:
		f.managed.end = c.field.end
	default:
		c.at = c.field.start
		c.fail(errSecondManaged)
	}
}

// readResourceVersion reads a decimal uint64, greater than 0. Its tag and its length take one byte
// each.
func readResourceVersion(c *cursor, f *scanned) {
	if !c.is(protowire.BytesType) {
		return
	}
	rv, err := strconv.ParseUint(string(c.bytes()), 10, 64)
	if err != nil || rv == 0 || f.rv != 0 || c.value.start != c.field.start+2 {
		c.at = c.field.start
		c.fail(fmt.Errorf("resourceVersion %.30q", c.bytes()))
		return
	}
	f.rv, f.digits = rv, c.value
}

// mapEntry reads an entry of a map of strings: a message of key and value.
func mapEntry(c *cursor) (key, value []byte) {
	if !c.is(protowire.BytesType) {
		return nil, nil
	}
	e := newCursor(c.input, c.value)
	for e.next() {
		switch e.number {
		case 1:
			key = e.textBytes()
		case 2:
			value = e.textBytes()
		}
	}
	c.err = e.err
	return key, value
}

// walk reads a message and takes the values that m wants, of a repeated field the first element. At the
// top level a second metadata is an error.
func (s *protobufScanner) walk(input []byte, message span, m *mask, top bool) error {
	s.walks++
	walk := s.walks
	c := newCursor(input, message)
	for c.next() {
		if top && c.number == 1 {
			c.at = c.field.start
			c.fail(errors.New("metadata is not first"))
		}
		if child := m.numbered(c.number); child != nil && child.walk != walk {
			child.walk = walk
			s.take(&c, child)
		}
	}
	return c.err
}

// take reads the cursor's field, which m wants.
func (s *protobufScanner) take(c *cursor, m *mask) {
	switch {
	case len(m.below) > 0:
		if c.is(protowire.BytesType) {
			c.err = s.walk(c.input, c.value, m, false)
		}
	case c.typ == protowire.VarintType:
		for _, leaf := range m.leaves {
			f := s.fields.fields[s.fields.owner[leaf]]
			s.fields.values[leaf] = varintText(c.varint, f)
		}
	case c.is(protowire.BytesType):
		s.fields.found(m.leaves, s.fields.texts.text(c.bytes()))
	}
}

// varintText returns a number in the form of a field selector on f, which is true or false for a
// bool.
func varintText(v uint64, f Field) string {
	if f.Default == "false" || f.Default == "true" {
		return strconv.FormatBool(v != 0)
	}
	return strconv.FormatInt(int64(v), 10)
}
