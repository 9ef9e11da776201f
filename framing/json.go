package framing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonScanner is the [Scanner] of [JSON].
type jsonScanner struct {
	pathFields

	input bytes.Buffer
	dec   *jsontext.Decoder
}

// asSent makes the decoder accept everything that kube-apiserver sends. kube-apiserver copies raw
// JSON from its author, such as the data of a ControllerRevision, with repeated names and invalid
// UTF-8 (seen on 1.36.3).
var asSent = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func newJSONScanner(fields []Field) *jsonScanner {
	return &jsonScanner{pathFields: newPathFields(fields), dec: jsontext.NewDecoder(new(bytes.Buffer))}
}

// event reads a line, which may end with a newline or not.
func (s *jsonScanner) event(line []byte) (Event, error) {
	var found scanned
	name, err := s.envelope(line, func() (span, error) {
		var err error
		found, err = s.object()
		return span{found.start, found.end}, err
	})
	if err != nil {
		return Event{}, err
	}
	raw := line[found.start:found.end]
	switch t := eventTypeOf(name); t {
	case Added, Modified, Deleted:
		found.managed = withComma(line, found.managed)
		o, err := s.identify(found)
		if err == nil {
			o.frame(t, raw)
		}
		return changed(t, o, err)
	case Bookmark:
		return newBookmark(JSON, raw, found, found.endMember(line))
	case Error:
		return errorEvent(raw)
	}
	return Event{}, fmt.Errorf("unknown type %.20q", name)
}

// envelope reads a line and returns the event's type. object reads the event's object, and returns its
// place.
func (s *jsonScanner) envelope(line []byte, object func() (span, error)) (typ string, err error) {
	s.reset(line)
	var at span
	_, err = s.members(func(name []byte) (err error) {
		switch string(name) {
		case `"type"`:
			typ, err = s.text()
		case `"object"`:
			at, err = object()
		default:
			err = s.dec.SkipValue()
		}
		return err
	})
	if err == nil {
		err = s.atEnd()
	}
	switch {
	case err != nil:
		return "", jsonError(err)
	case at.len() == 0:
		return "", errors.New("no object")
	}
	return typ, nil
}

// errorEvent returns the ERROR event with this Status.
func errorEvent(status []byte) (Event, error) {
	ev := Event{Type: Error}
	if err := json.Unmarshal(status, &ev.Status); err != nil {
		return Event{}, fmt.Errorf("ERROR: %w", err)
	}
	return ev, nil
}

// item reads an item. In lists of built-in types only the envelope has kind and apiVersion.
func (s *jsonScanner) item(raw, typeMeta []byte) (*Object, error) {
	s.reset(raw)
	found, err := s.object()
	if err == nil {
		err = s.atEnd()
	}
	if err != nil {
		return nil, jsonError(err)
	}
	found.managed = withComma(raw, found.managed)
	o, err := s.identify(found)
	if err != nil {
		return nil, err
	}
	raw = raw[found.start:found.end]
	if found.hasKind || len(typeMeta) == 0 {
		o.frame(Added, raw)
		return o, nil
	}
	o.layout = o.moved(span{1, 1}, len(typeMeta))
	o.frame(Added, raw[:1], typeMeta, raw[1:])
	return o, nil
}

// ErrReplaced is returned for a JSON object whose namespace, name or uid contains U+FFFD, the
// replacement character. JSON cannot express bytes that are not UTF-8, and kube-apiserver writes
// U+FFFD in their place. So two objects may have the same name in JSON, and their order is not
// known. Protobuf and CBOR have the bytes themselves. Names of RBAC's kinds may be such bytes.
var ErrReplaced = errors.New("name, namespace or uid that JSON cannot express")

// identify returns the object that was found, unless JSON may have changed its identity.
func (s *jsonScanner) identify(found scanned) (*Object, error) {
	if found.replaced {
		return nil, ErrReplaced
	}
	return found.identify(JSON, &s.fields)
}

func (s *jsonScanner) reset(input []byte) {
	s.input = *bytes.NewBuffer(input)
	s.dec.Reset(&s.input, asSent...)
	s.fields.reset()
}

// atEnd returns an error if anything but white space follows the value that was read.
func (s *jsonScanner) atEnd() error {
	if _, err := s.dec.ReadToken(); err != io.EOF {
		if err == nil {
			err = errors.New("data after the value")
		}
		return err
	}
	return nil
}

func (s *jsonScanner) offset() int { return int(s.dec.InputOffset()) }

// members reads an object and returns its place. It calls f after each member's name, which is
// quoted, and f reads or skips the value.
func (s *jsonScanner) members(f func(name []byte) error) (span, error) {
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

// ErrTooDeep is returned for JSON that nests deeper than 10,000 levels, including the event or list
// around an object. kube-apiserver accepts objects of 10,000 levels (sigs.k8s.io/json). So some
// objects have one or two levels too many here, as they do for client-go.
var ErrTooDeep = errors.New("JSON of more than 10,000 levels")

// jsonError returns an error of the decoder without the names of the enclosing members: an object's
// content must not be logged.
func jsonError(err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	err = syntax.Err
	if err.Error() == "exceeded max depth" { // the decoder exports no error for it
		err = ErrTooDeep
	}
	return fmt.Errorf("byte %d: %w", syntax.ByteOffset, err)
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// text reads a string; null reads as "".
func (s *jsonScanner) text() (string, error) {
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

// identity is text for a part of an object's identity; see ErrReplaced.
func (s *jsonScanner) identity(f *scanned) (string, error) {
	text, err := s.text()
	f.replaced = f.replaced || replaced(text)
	return text, err
}

// hash reads a value and returns the hash of the string; that of "" for any other value. The string
// is a part of an object's identity.
func (s *jsonScanner) hash(f *scanned) (uint64, error) {
	v, err := s.dec.ReadValue()
	switch {
	case err != nil:
		return 0, err
	case v.Kind() != '"':
		return hashOfNothing, nil
	case bytes.IndexByte(v, '\\') < 0:
		v = v[1 : len(v)-1]
	default:
		v = jsontext.Value(unquote(v))
	}
	f.replaced = f.replaced || replaced(v)
	return HashOf(v), nil
}

// replaced reports whether text contains U+FFFD, or bytes that are not UTF-8.
func replaced[T ~string | ~[]byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return strings.ContainsRune(string(text[i:]), utf8.RuneError)
		}
	}
	return false
}

// repeated is unquote for a string that other objects may have too.
func (s *jsonScanner) repeated(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return s.fields.texts.text(v[1 : len(v)-1])
	}
	return unquote(v)
}

// unquote returns the value of a string that the decoder has read.
func unquote(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	b, _ := jsontext.AppendUnquote(nil, v) // the only possible error is invalid UTF-8, which is replaced
	return string(b)
}

// object reads an API object: its metadata, and the values of the fields.
func (s *jsonScanner) object() (scanned, error) {
	f := scanned{item: -1, uidHash: hashOfNothing}
	at, err := s.members(func(name []byte) error {
		switch string(name) {
		case `"kind"`, `"apiVersion"`:
			f.hasKind = true
			return s.walk(s.tree.member(name))
		}
		if f.item < 0 { // the first other member
			f.item = s.offset() - len(name)
		}
		if string(name) == `"metadata"` {
			return s.metadata(&f)
		}
		return s.walk(s.tree.member(name))
	})
	f.start, f.end = at.start, at.end
	if f.item < 0 {
		f.item = f.start + 1
	}
	f.itemEnd = f.end
	return f, err
}

func (s *jsonScanner) metadata(f *scanned) error {
	_, err := s.members(func(name []byte) (err error) {
		switch string(name) {
		case `"namespace"`:
			f.namespace, err = s.identity(f)
		case `"name"`:
			f.name, err = s.identity(f)
		case `"resourceVersion"`:
			f.rv, err = s.resourceVersion(f)
		case `"uid"`:
			f.uidHash, err = s.hash(f)
		case `"labels"`:
			f.labels, err = s.labels()
		case `"annotations"`:
			f.annotations.start = s.offset() - len(name)
			err = s.annotations(f)
			f.annotations.end = s.offset()
		default:
			start := s.offset() - len(name)
			managed := isManagedFields(name)
			if err = s.dec.SkipValue(); err == nil && managed {
				if f.managed.len() > 0 {
					return errSecondManaged
				}
				f.managed = span{start, s.offset()}
			}
		}
		return err
	})
	return err
}

// isManagedFields reports whether a quoted member name is managedFields.
func isManagedFields(name []byte) bool {
	return string(name) == `"managedFields"` || bytes.IndexByte(name, '\\') >= 0 && unquote(name) == "managedFields"
}

// withComma returns a member's place with the comma behind it, else with the one before it, so that
// the rest is an object without the member. An empty member has no comma.
func withComma(input []byte, member span) span {
	if member.len() == 0 {
		return member
	}
	behind, before := member.end, member.start-1
	for isSpace(input[behind]) {
		behind++
	}
	for isSpace(input[before]) {
		before--
	}
	switch {
	case input[behind] == ',':
		return span{member.start, behind + 1}
	case input[before] == ',':
		return span{before, member.end}
	}
	return member
}

// isSpace reports whether c is white space of JSON (RFC 8259, section 2).
func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// resourceVersion reads a decimal uint64 in a string, greater than 0. It is the etcd revision that
// orders the events of one resource.
func (s *jsonScanner) resourceVersion(f *scanned) (uint64, error) {
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

func (s *jsonScanner) labels() (map[string]string, error) {
	if s.dec.PeekKind() == 'n' {
		return nil, s.dec.SkipValue()
	}
	s.fields.texts.beginLabels()
	_, err := s.members(func(name []byte) error {
		key := s.repeated(name)
		v, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		switch v.Kind() {
		case '"':
			s.fields.texts.addLabel(key, s.repeated(v))
		case 'n':
			s.fields.texts.addLabel(key, "")
		default:
			return fmt.Errorf("found %s, expected a string", v.Kind())
		}
		return nil
	})
	return s.fields.texts.madeLabels(), err
}

// annotations only looks for the annotation that marks the end of initial events.
func (s *jsonScanner) annotations(f *scanned) error {
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

// walk reads a value and takes the values that the tree wants.
func (s *jsonScanner) walk(t *fieldTree) error {
	if t == nil {
		return s.dec.SkipValue()
	}
	switch kind := s.dec.PeekKind(); {
	case kind == '{' && t.members != nil:
		_, err := s.members(func(name []byte) error { return s.walk(t.member(name)) })
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
		text = s.repeated(v)
	case 't', 'f', '0':
		text = string(v)
	}
	s.found(t, text)
	return nil
}

// member returns the tree for the member with that name, which is quoted.
func (t *fieldTree) member(quoted []byte) *fieldTree {
	return t.members[string(quoted[1:len(quoted)-1])]
}

// walkFirst reads an array and takes the values that t wants of its first element.
func (s *jsonScanner) walkFirst(t *fieldTree) error {
	return s.elements(func() error {
		err := s.walk(t)
		t = nil
		return err
	})
}

// elements reads an array. It calls f for each element, and f reads or skips it.
func (s *jsonScanner) elements(f func() error) error {
	_, err := s.dec.ReadToken()
	for err == nil && s.dec.PeekKind() != ']' {
		err = f()
	}
	if err == nil {
		_, err = s.dec.ReadToken()
	}
	return err
}
