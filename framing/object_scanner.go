package framing

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectScanner is the [Scanner] of [JSON] and [CBOR].
type objectScanner struct {
	encoding Encoding
	in       values
	fields   fieldValues
	paths    mask
	types    []span // the members kind and apiVersion of the current object
	name     []byte // of the event's type
	head     []byte // of an object in CBOR as it will be kept
}

func newObjectScanner(e Encoding, fields []Field) *objectScanner {
	s := &objectScanner{encoding: e, in: newValues(e, nil), fields: fieldValues{fields: fields}}
	for i, f := range fields {
		for _, path := range f.Paths {
			s.fields.add(&s.paths, i, Names(path...))
		}
	}
	return s
}

// event reads an event. In JSON it may end with a newline or not.
func (s *objectScanner) event(event []byte) (Event, error) {
	var found scanned
	name, at, err := s.envelope(event, func() { found = s.object() })
	if err != nil {
		return Event{}, err
	}
	switch t := eventTypeOf(string(name)); t {
	case Added, Modified, Deleted:
		if s.encoding == CBOR && len(s.types) == 0 {
			return changed(t, nil, errType)
		}
		o, err := s.keep(t, event, found, nil)
		return changed(t, o, err)
	case Bookmark:
		found.start = at.start
		return s.bookmark(event, found)
	case Error:
		return s.errorEvent(event[at.start:at.end])
	}
	return Event{}, fmt.Errorf("unknown type %.20q", name)
}

// envelope reads an event, and returns its type and the place of its object, which object reads.
func (s *objectScanner) envelope(event []byte, object func()) (typ []byte, at span, err error) {
	s.name = s.name[:0]
	s.in.reset(event)
	s.in.tag()
	for _, name := range members(s.in) {
		switch string(name) {
		case "type":
			s.name = append(s.name[:0], s.in.text()...)
		case "object":
			at.start = s.in.start()
			s.in.tag()
			object()
			at.end = s.in.offset()
		default:
			s.in.skip()
		}
	}
	err = s.in.end("value")
	if err == nil && at.len() == 0 {
		err = errors.New("no object")
	}
	return s.name, at, err
}

// errorEvent returns the ERROR event with this Status.
func (s *objectScanner) errorEvent(status []byte) (Event, error) {
	ev := Event{Type: Error, Status: new(metav1.Status)}
	if err := s.in.decode(status, ev.Status); err != nil {
		return Event{}, fmt.Errorf("ERROR: %w", err)
	}
	return ev, nil
}

// bookmark returns the event of a bookmark's object. A plain bookmark has one annotation less. If
// that was the only one, it has no annotations.
func (s *objectScanner) bookmark(event []byte, found scanned) (Event, error) {
	mark, in := found.endAnnotation, found.annotationsMap
	if found.annotationCount == 1 {
		mark, in = found.annotations, found.metadataMap
	}
	if s.encoding == JSON && found.initialEventsEnd {
		mark = withComma(event, mark)
	}
	return newBookmark(s.encoding, event[found.start:found.end], found, mark, in)
}

// item reads an item. In lists of built-in types only the envelope has kind and apiVersion.
func (s *objectScanner) item(raw, typeMeta []byte) (*Object, error) {
	s.in.reset(raw)
	found := s.object()
	if err := s.in.end("value"); err != nil {
		return nil, err
	}
	return s.keep(Added, raw, found, typeMeta)
}

var errType = errors.New("object without kind or apiVersion, or with two")

// keep returns the object that was found, with the type that typeMeta names, if it has none itself.
func (s *objectScanner) keep(t EventType, input []byte, found scanned, typeMeta []byte) (*Object, error) {
	var buf [3]splice
	splices := buf[:0]
	switch n := len(s.types); {
	case s.encoding == CBOR && n != 0 && n != 2:
		return nil, errType
	case s.encoding == CBOR:
		splices = s.typeFirst(splices, input, &found, typeMeta)
	case found.replaced:
		return nil, ErrReplaced
	case n == 0:
		splices = append(splices, splice{span{1, 1}, typeMeta})
	}
	o, err := found.identify(s.encoding, &s.fields)
	if err != nil {
		return nil, err
	}
	o.layout = o.moved(splices...)
	o.frame(t, appendSpliced(new(spliced)[:0], input[found.start:found.end], 0, splices)...)
	return o, nil
}

// object reads an API object: its metadata, its type, and the values of the fields.
func (s *objectScanner) object() scanned {
	s.fields.reset()
	s.types = s.types[:0]
	f := scanned{start: s.in.start(), uidHash: hashOfNothing}
	for start, name := range members(s.in) {
		switch string(name) {
		case "kind", "apiVersion":
			s.walk(s.paths.named(name))
			s.types = append(s.types, span{start, s.in.offset()})
			continue
		case "metadata":
			s.metadata(&f)
		default:
			s.walk(s.paths.named(name))
		}
		if f.item == 0 { // the first member other than the type
			f.item = start
		}
	}
	f.end = s.in.offset()
	f.itemEnd = f.end
	if f.item == 0 {
		f.item = f.start + 1
	}
	return f
}

func (s *objectScanner) metadata(f *scanned) {
	s.once(&f.metadataMap)
	for start, name := range members(s.in) {
		switch string(name) {
		case "namespace":
			f.namespace = s.identity(f)
		case "name":
			f.name = s.identity(f)
		case "uid":
			uid := s.textIfAny()
			f.replaced = f.replaced || replaced(uid)
			f.uidHash = HashOf(uid)
		case "resourceVersion":
			s.once(&f.digits.start)
			f.rv, f.digits = s.in.version()
		case "labels":
			s.labels(f)
		case "annotations":
			s.once(&f.annotationsMap)
			s.annotations(f)
			f.annotations = span{start, s.in.offset()}
		case "managedFields":
			if f.managed.len() > 0 {
				s.in.fail(errSecondManaged)
			}
			s.in.skip()
			f.managed = span{start, s.in.offset()}
		default:
			s.in.skip()
		}
	}
}

var errSecond = errors.New("found for a second time")

// once notes the offset of the next value. In CBOR, whose maps have counts, it must be the first with
// its name.
func (s *objectScanner) once(at *int) {
	if *at != 0 && s.encoding == CBOR {
		s.in.fail(errSecond)
	}
	*at = s.in.start()
}

// identity reads a part of an object's identity; see ErrReplaced.
func (s *objectScanner) identity(f *scanned) string {
	text := s.in.text()
	f.replaced = f.replaced || replaced(text)
	return string(text)
}

// textIfAny is text, but reads any other value of JSON as "".
func (s *objectScanner) textIfAny() []byte {
	if s.encoding == JSON && s.in.kind() != '"' {
		s.in.skip()
		return nil
	}
	return s.in.text()
}

func (s *objectScanner) labels(f *scanned) {
	texts := &s.fields.texts
	texts.beginLabels()
	if s.in.kind() == 'n' {
		s.in.skip()
	} else {
		for _, name := range members(s.in) {
			key := texts.text(name)
			texts.addLabel(key, texts.text(s.in.text()))
		}
	}
	f.labels = texts.madeLabels()
}

// annotations only looks for the annotation that marks the end of initial events.
func (s *objectScanner) annotations(f *scanned) {
	if s.in.kind() == 'n' {
		s.in.skip()
		return
	}
	for start, name := range members(s.in) {
		f.annotationCount++
		if string(name) != InitialEventsEnd {
			s.in.skip()
			continue
		}
		s.once(&f.endAnnotation.start)
		f.initialEventsEnd = string(s.textIfAny()) == "true"
		f.endAnnotation = span{start, s.in.offset()}
	}
}

// walk reads a value and takes the values that m wants.
func (s *objectScanner) walk(m *mask) {
	if m == nil {
		s.in.skip()
		return
	}
	switch kind := s.in.kind(); {
	case kind == '{' && len(m.below) > 0:
		for _, name := range members(s.in) {
			s.walk(m.named(name))
		}
	case kind == '[' && m.named(arrayHead) != nil:
		first := m.named(arrayHead)
		for s.in.enterArray(); s.in.element(); first = nil {
			s.walk(first)
		}
	case kind == '{' || kind == '[' || len(m.leaves) == 0:
		s.in.skip()
	case kind == '"':
		s.fields.found(m.leaves, s.fields.texts.text(s.in.text()))
	default:
		s.fields.found(m.leaves, s.in.scalar())
	}
}
