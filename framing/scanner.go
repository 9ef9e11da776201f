package framing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// InitialEventsEnd is the annotation of the bookmark that ends the initial
// events of a watch (k8s.io/apimachinery/pkg/apis/meta/v1,
// InitialEventsAnnotationKey; KEP-3157).
const InitialEventsEnd = "k8s.io/initial-events-end"

// Event is one watch event as it came from upstream.
type Event struct {
	Type EventType
	// Object is set for Added, Modified and Deleted.
	Object *Object
	// ResourceVersion is that of the object or bookmark; 0 for Error.
	ResourceVersion uint64
	// InitialEventsEnd reports whether this is the bookmark that ends the
	// initial events.
	InitialEventsEnd bool
	// Form is how upstream writes bookmarks of this kind; set for Bookmark.
	Form BookmarkForm
	// Status is what the server said; set for Error.
	Status Status
}

// Status is the part of a metav1.Status that an ERROR event's reader acts on.
type Status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`
}

// Scanner reads watch events and list items of one kind. It reuses its buffers
// and may be used by one goroutine at a time.
type Scanner struct {
	fields []Field
	tree   fieldTree
	leaves int

	input  bytes.Buffer
	dec    *jsontext.Decoder
	values []string // of the object being read, by leaf
}

// asSent lets the decoder read all that kube-apiserver sends. It copies raw JSON, such as the data of a
// ControllerRevision, from whoever wrote it, with repeated names and invalid UTF-8 (seen on 1.36.3).
var asSent = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// NewScanner returns a Scanner that extracts the given fields of each object,
// in this order, into [Object.Fields].
func NewScanner(fields []Field) *Scanner {
	s := &Scanner{fields: fields, dec: jsontext.NewDecoder(new(bytes.Buffer))}
	for _, f := range fields {
		for _, path := range f.Paths {
			s.tree.add(path, s.leaves)
			s.leaves++
		}
	}
	s.values = make([]string, s.leaves)
	return s
}

// Event reads one line of a watch stream, with or without its newline. The
// result shares no memory with line. Any error means that the stream can no
// longer be trusted.
func (s *Scanner) Event(line []byte) (Event, error) {
	s.reset(line)
	var (
		typ    string
		object scanned
		found  bool
	)
	_, err := s.members(func(name []byte) error {
		switch string(name) {
		case `"type"`:
			var err error
			typ, err = s.text()
			return err
		case `"object"`:
			var err error
			object, err = s.object()
			found = true
			return err
		}
		return s.dec.SkipValue()
	})
	if err == nil {
		err = s.atEnd()
	}
	if err != nil {
		return Event{}, fmt.Errorf("read watch event: %w", err)
	}
	if !found {
		return Event{}, errors.New("read watch event: no object")
	}
	raw := line[object.start:object.end]
	switch typ {
	case "ADDED":
		return s.changed(Added, object, raw)
	case "MODIFIED":
		return s.changed(Modified, object, raw)
	case "DELETED":
		return s.changed(Deleted, object, raw)
	case "BOOKMARK":
		if object.rv == 0 {
			return Event{}, errors.New("read watch event: BOOKMARK without resourceVersion")
		}
		return Event{
			Type:             Bookmark,
			ResourceVersion:  object.rv,
			InitialEventsEnd: object.initialEventsEnd,
			Form:             newBookmarkForm(raw, object),
		}, nil
	case "ERROR":
		ev := Event{Type: Error}
		if err := json.Unmarshal(raw, &ev.Status); err != nil {
			return Event{}, fmt.Errorf("read watch event: ERROR: %w", err)
		}
		return ev, nil
	}
	return Event{}, fmt.Errorf("read watch event: unknown type %.20q", typ)
}

func (s *Scanner) changed(t EventType, found scanned, raw []byte) (Event, error) {
	o, err := found.identify(s)
	if err != nil {
		return Event{}, fmt.Errorf("read watch event: %s: %w", t, err)
	}
	o.frame(t, raw)
	return Event{Type: t, Object: o, ResourceVersion: o.ResourceVersion}, nil
}

// Item reads one element of a list's items. Where the list leaves kind and
// apiVersion to its envelope, as lists of built-in types do, typeMeta supplies
// them ([ListForm.TypeMeta]), so that the result is what a watch would send.
// The result shares no memory with raw.
func (s *Scanner) Item(raw, typeMeta []byte) (*Object, error) {
	s.reset(raw)
	found, err := s.object()
	if err == nil {
		err = s.atEnd()
	}
	if err != nil {
		return nil, fmt.Errorf("read list item: %w", err)
	}
	o, err := found.identify(s)
	if err != nil {
		return nil, fmt.Errorf("read list item: %w", err)
	}
	raw = raw[found.start:found.end]
	if found.hasKind || len(typeMeta) == 0 {
		o.frame(Added, raw)
		return o, nil
	}
	o.item = int32(1 + len(typeMeta))
	o.rvStart += int32(len(typeMeta))
	o.rvEnd += int32(len(typeMeta))
	o.frame(Added, raw[:1], typeMeta, raw[1:])
	return o, nil
}

// scanned is what one walk over an object has found. Offsets are into the
// input.
type scanned struct {
	start, end       int
	namespace, name  string
	rv               uint64
	rvStart, rvEnd   int
	labels           map[string]string
	hasKind          bool
	item             int // after a leading kind and apiVersion
	initialEventsEnd bool
	annotations      span // the whole member, with its name
	endAnnotation    span // the InitialEventsEnd member within
	annotationCount  int
}

// span is a range of bytes of the input.
type span struct{ start, end int }

func (f scanned) identify(s *Scanner) (*Object, error) {
	if f.name == "" {
		return nil, errors.New("object without metadata.name")
	}
	if f.rv == 0 {
		return nil, errors.New("object without metadata.resourceVersion")
	}
	o := &Object{
		ResourceVersion: f.rv,
		Labels:          f.labels,
		rvStart:         int32(f.rvStart - f.start),
		rvEnd:           int32(f.rvEnd - f.start),
		item:            int32(f.item - f.start),
	}
	o.Key = f.name
	if f.namespace != "" {
		o.Key = f.namespace + "/" + f.name
		o.Namespace = o.Key[:len(f.namespace)]
	}
	o.Name = o.Key[len(o.Key)-len(f.name):]
	if len(s.fields) > 0 {
		o.Fields = make([]string, len(s.fields))
		leaf := 0
		for i, field := range s.fields {
			o.Fields[i] = field.Default
			taken := false
			for range field.Paths {
				if v := s.values[leaf]; v != "" && !taken {
					o.Fields[i], taken = v, true
				}
				leaf++
			}
		}
	}
	return o, nil
}

func (s *Scanner) reset(input []byte) {
	s.input = *bytes.NewBuffer(input)
	s.dec.Reset(&s.input, asSent...)
	clear(s.values)
}

// atEnd reports anything but white space behind the value that was read.
func (s *Scanner) atEnd() error {
	if _, err := s.dec.ReadToken(); err != io.EOF {
		if err == nil {
			err = errors.New("data after the value")
		}
		return err
	}
	return nil
}

func (s *Scanner) offset() int { return int(s.dec.InputOffset()) }

// members reads an object, calls f behind each member's name, which is quoted,
// and returns where the object stands. f reads or skips the value.
func (s *Scanner) members(f func(name []byte) error) (span, error) {
	tok, err := s.dec.ReadToken()
	if err != nil {
		return span{}, unexpectedEOF(err)
	}
	if tok.Kind() != '{' {
		return span{}, fmt.Errorf("found %s, expected an object", tok.Kind())
	}
	at := span{start: s.offset() - 1}
	for s.dec.PeekKind() != '}' {
		name, err := s.dec.ReadValue()
		if err != nil {
			return span{}, unexpectedEOF(err)
		}
		if err := f(name); err != nil {
			return span{}, unexpectedEOF(err)
		}
	}
	_, err = s.dec.ReadToken()
	at.end = s.offset()
	return at, unexpectedEOF(err)
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// text reads a string; null reads as "".
func (s *Scanner) text() (string, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return "", err
	}
	switch v.Kind() {
	case '"':
		return unquote(v), nil
	case 'n':
		return "", nil
	}
	return "", fmt.Errorf("found %s, expected a string", v.Kind())
}

// unquote returns what a string that the decoder has read stands for.
func unquote(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	b, _ := jsontext.AppendUnquote(nil, v) // the only error left is invalid UTF-8, which it has replaced
	return string(b)
}

// object reads an API object: its metadata, and the values of the fields.
func (s *Scanner) object() (scanned, error) {
	f := scanned{item: -1}
	leading := true // only kind and apiVersion so far
	at, err := s.members(func(name []byte) error {
		switch string(name) {
		case `"kind"`, `"apiVersion"`:
			f.hasKind = true
			err := s.dec.SkipValue()
			if leading {
				f.item = s.offset() + 1 // behind the comma
			}
			return err
		case `"metadata"`:
			leading = false
			return s.metadata(&f)
		}
		leading = false
		return s.walk(s.tree.members[string(name)])
	})
	f.start, f.end = at.start, at.end
	if f.item < 0 || f.item >= f.end {
		f.item = f.start + 1
	}
	return f, err
}

func (s *Scanner) metadata(f *scanned) error {
	_, err := s.members(func(name []byte) (err error) {
		switch string(name) {
		case `"namespace"`:
			f.namespace, err = s.text()
		case `"name"`:
			f.name, err = s.text()
		case `"resourceVersion"`:
			f.rv, err = s.resourceVersion(f)
		case `"labels"`:
			f.labels, err = s.labels()
		case `"annotations"`:
			f.annotations.start = s.offset() - len(name)
			err = s.annotations(f)
			f.annotations.end = s.offset()
		default:
			err = s.dec.SkipValue()
		}
		return err
	})
	return err
}

// resourceVersion reads a decimal uint64 in a string, greater than 0: the
// revision of etcd, by which events of one resource are ordered.
func (s *Scanner) resourceVersion(f *scanned) (uint64, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return 0, err
	}
	if len(v) < 3 || v.Kind() != '"' {
		return 0, fmt.Errorf("resourceVersion %.30s", v)
	}
	rv, err := strconv.ParseUint(string(v[1:len(v)-1]), 10, 64)
	if err != nil || rv == 0 {
		return 0, fmt.Errorf("resourceVersion %.30s", v)
	}
	f.rvEnd = s.offset() - 1
	f.rvStart = f.rvEnd - (len(v) - 2)
	return rv, nil
}

func (s *Scanner) labels() (map[string]string, error) {
	if s.dec.PeekKind() == 'n' {
		return nil, s.dec.SkipValue()
	}
	labels := make(map[string]string)
	_, err := s.members(func(name []byte) error {
		key := unquote(name)
		value, err := s.text()
		labels[key] = value
		return err
	})
	return labels, err
}

// annotations only looks for the mark of the end of initial events.
func (s *Scanner) annotations(f *scanned) error {
	if s.dec.PeekKind() == 'n' {
		return s.dec.SkipValue()
	}
	_, err := s.members(func(name []byte) error {
		f.annotationCount++
		if string(name) != `"`+InitialEventsEnd+`"` {
			return s.dec.SkipValue()
		}
		start := s.offset() - len(name)
		v, err := s.dec.ReadValue()
		f.initialEventsEnd = string(v) == `"true"`
		f.endAnnotation = span{start, s.offset()}
		return err
	})
	return err
}

// walk reads a value and takes what the tree wants of it.
func (s *Scanner) walk(t *fieldTree) error {
	if t == nil {
		return s.dec.SkipValue()
	}
	switch kind := s.dec.PeekKind(); {
	case kind == '{' && t.members != nil:
		_, err := s.members(func(name []byte) error { return s.walk(t.members[string(name)]) })
		return err
	case kind == '[' && t.first != nil:
		return s.walkFirst(t.first)
	case kind == '{' || kind == '[' || len(t.leaves) == 0:
		return s.dec.SkipValue()
	}
	v, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	text := ""
	switch v.Kind() {
	case '"':
		text = unquote(v)
	case 't', 'f', '0':
		text = string(v)
	}
	for _, leaf := range t.leaves {
		s.values[leaf] = text
	}
	return nil
}

// walkFirst reads an array and takes what t wants of its first element.
func (s *Scanner) walkFirst(t *fieldTree) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for ; s.dec.PeekKind() != ']'; t = nil {
		if err := s.walk(t); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}
