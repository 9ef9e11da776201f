package framing

import (
	"errors"
	"fmt"
	"strconv"
)

// cborScanner is the [Scanner] of [CBOR]. Maps come in any order. So it moves an object's kind and
// apiVersion to the front, and a list item is then the rest of the object.
type cborScanner struct {
	pathFields
	types []span   // entries kind and apiVersion of the current object
	parts [][]byte // of the object as it will be kept
}

func newCBORScanner(fields []Field) *cborScanner {
	return &cborScanner{pathFields: newPathFields(fields)}
}

func (s *cborScanner) event(event []byte) (Event, error) {
	var (
		typ   []byte
		found scanned
		whole []byte // the object with its tag
	)
	c := itemCursor{input: event}
	c.selfDescribed()
	for _, name := range c.entries() {
		switch string(name) {
		case "type":
			typ = c.text()
		case "object":
			start := c.at
			c.selfDescribed()
			found = s.object(&c)
			whole = event[start:c.at]
		default:
			c.skip()
		}
	}
	if err := c.atEnd(); err != nil {
		return Event{}, err
	}
	if whole == nil {
		return Event{}, errors.New("no object")
	}
	switch t := eventTypeOf(string(typ)); t {
	case Added, Modified, Deleted:
		if len(s.types) != 2 {
			return changed(t, nil, errType)
		}
		o, err := s.keep(t, event, found, nil)
		return changed(t, o, err)
	case Bookmark:
		return bookmarkOfCBOR(whole, found)
	case Error:
		ev := Event{Type: Error}
		if err := decoding.Unmarshal(whole, &ev.Status); err != nil {
			return Event{}, fmt.Errorf("ERROR: %w", err)
		}
		return ev, nil
	}
	return Event{}, fmt.Errorf("unknown type %.20q", typ)
}

var errType = errors.New("object without kind or apiVersion, or with two")

func bookmarkOfCBOR(whole []byte, found scanned) (Event, error) {
	found.start = found.end - len(whole) // of the tag, whose head may be longer than needed
	// If the annotation is the only one, all annotations go, and metadata has one entry less.
	// Otherwise the annotations have one entry less.
	cut, inMap := found.endAnnotation, found.annotationsMap
	if found.annotationCount == 1 {
		cut, inMap = found.annotations, found.metadataMap
	}
	ev, err := newBookmark(CBOR, whole, found, cut)
	if err == nil && found.initialEventsEnd {
		head := &ev.Form.plain.object[inMap-found.start]
		if *head > majorMap<<5|23 {
			return Event{}, errors.New("BOOKMARK with more than 23 annotations")
		}
		*head--
	}
	return ev, err
}

// item reads an item. In lists of built-in types only the envelope has kind and apiVersion.
func (s *cborScanner) item(raw, typeMeta []byte) (*Object, error) {
	c := itemCursor{input: raw}
	found := s.object(&c)
	if err := c.atEnd(); err != nil {
		return nil, err
	}
	switch len(s.types) {
	case 0:
	case 2:
		typeMeta = nil
	default:
		return nil, errType
	}
	return s.keep(Added, raw, found, typeMeta)
}

// atEnd returns the error of the walk, or an error if data follows.
func (c *itemCursor) atEnd() error {
	if c.err == nil && c.at < len(c.input) {
		c.fail(errors.New("data after the value"))
	}
	return c.err
}

// keep returns the object that was found, with its type first:
//
//	d9d9f7  <map>  kind apiVersion  ┆ the other entries
//	                                └ item
func (s *cborScanner) keep(t EventType, input []byte, found scanned, typeMeta []byte) (*Object, error) {
	_, entries, size, _ := itemHead(input[found.start:])
	if typeMeta != nil {
		entries += 2
	}
	head := appendItemHead([]byte(selfDescribed), majorMap, entries)
	item := len(head) + len(typeMeta)
	s.parts = append(s.parts[:0], head, typeMeta)
	first := found.start + size
	moved := item - first // the distance by which the resourceVersion moves
	for _, at := range s.types {
		s.parts = append(s.parts, input[at.start:at.end])
		item += at.len()
		if at.start > found.rvStart {
			moved += at.len()
		}
	}
	rest := first
	for _, at := range s.types {
		s.parts = append(s.parts, input[rest:at.start])
		rest = at.end
	}
	s.parts = append(s.parts, input[rest:found.end])

	length := 0
	for _, part := range s.parts {
		length += len(part)
	}
	found.start, found.end = 0, length
	found.item, found.itemEnd = item, length
	found.rvStart += moved
	found.rvEnd += moved
	found.metadataMap += moved
	found.managed.start += moved
	found.managed.end += moved
	o, err := found.identify(CBOR, &s.fields)
	if err != nil {
		return nil, err
	}
	o.frame(t, s.parts...)
	clear(s.parts)
	return o, nil
}

// object reads an API object: its metadata, its type, and the values of the fields.
func (s *cborScanner) object(c *itemCursor) scanned {
	s.fields.reset()
	s.types = s.types[:0]
	f := scanned{start: c.at, uidHash: hashOfNothing}
	for start, name := range c.entries() {
		switch string(name) {
		case "kind", "apiVersion":
			s.walk(c, s.tree.members[string(name)])
			s.types = append(s.types, span{start, c.at})
		case "metadata":
			objectMetaOfCBOR(c, &f, &s.fields.texts)
		default:
			s.walk(c, s.tree.members[string(name)])
		}
	}
	f.end = c.at
	return f
}

var errSecond = errors.New("found for a second time")

func objectMetaOfCBOR(c *itemCursor, f *scanned, texts *texts) {
	if f.metadataMap != 0 {
		c.fail(errSecond)
	}
	f.metadataMap = c.at
	for start, name := range c.entries() {
		switch string(name) {
		case "name":
			f.name = string(c.text())
		case "namespace":
			f.namespace = string(c.text())
		case "uid":
			f.uidHash = HashOf(c.text())
		case "resourceVersion":
			resourceVersionOfCBOR(c, f)
		case "labels":
			texts.beginLabels()
			for _, key := range c.entries() {
				texts.addLabel(texts.text(key), texts.text(c.text()))
			}
			f.labels = texts.madeLabels()
		case "annotations":
			if f.annotationsMap != 0 {
				c.fail(errSecond)
			}
			f.annotationsMap = c.at
			for start, key := range c.entries() {
				f.annotationCount++
				if string(key) != InitialEventsEnd {
					c.skip()
					continue
				}
				if f.endAnnotation.end != 0 {
					c.fail(errSecond)
				}
				f.initialEventsEnd = string(c.text()) == "true"
				f.endAnnotation = span{start, c.at}
			}
			f.annotations = span{start, c.at}
		case "managedFields":
			if f.managed.len() > 0 {
				c.fail(errSecondManaged)
			}
			c.skip()
			f.managed = span{start, c.at}
		default:
			c.skip()
		}
	}
}

// resourceVersionOfCBOR reads a decimal uint64, greater than 0, in a byte string with a head of one
// byte.
func resourceVersionOfCBOR(c *itemCursor, f *scanned) {
	at := c.at
	text := c.text()
	if c.err != nil {
		return
	}
	rv, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || rv == 0 || len(text) > 20 || c.input[at]>>5 != majorBytes || len(text) != c.at-at-1 || f.rv != 0 {
		c.at = at
		c.fail(fmt.Errorf("resourceVersion %.30q", text))
		return
	}
	f.rv, f.rvStart, f.rvEnd = rv, at+1, c.at
}

// walk reads an item and takes the values that the tree wants.
func (s *cborScanner) walk(c *itemCursor, t *fieldTree) {
	if t == nil || c.err != nil || c.at == len(c.input) {
		c.skip()
		return
	}
	switch major := c.input[c.at] >> 5; {
	case major == majorMap && t.members != nil:
		for _, name := range c.entries() {
			s.walk(c, t.members[string(name)])
		}
	case major == majorArray && t.first != nil:
		first := t.first
		for n := c.open(majorArray); n > 0 && c.err == nil; n-- {
			s.walk(c, first)
			first = nil
		}
	case major == majorMap || major == majorArray || len(t.leaves) == 0:
		c.skip()
	default:
		s.found(t, textOfCBOR(c, &s.fields.texts))
	}
}

// textOfCBOR reads a value in the form of a field selector.
func textOfCBOR(c *itemCursor, texts *texts) string {
	switch c.input[c.at] >> 5 {
	case majorBytes, majorText:
		return texts.text(c.text())
	}
	var value any
	if item := c.skip(); c.err != nil || decoding.Unmarshal(item, &value) != nil {
		return ""
	}
	switch value.(type) {
	case string, bool, int64, uint64, float64:
		return fmt.Sprint(value)
	}
	return ""
}
