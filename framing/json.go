package framing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonValues are the [values] of [JSON].
type jsonValues struct {
	document []byte // nil if it is a stream
	input    bytes.Buffer
	dec      *jsontext.Decoder
	err      error
}

// asSent makes the decoder accept everything that kube-apiserver sends. kube-apiserver copies raw
// JSON from its author, such as the data of a ControllerRevision, with repeated names and invalid
// UTF-8 (seen on 1.36.3).
var asSent = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// space is the white space of JSON (RFC 8259, section 2).
const space = " \n\t\r"

func newJSONValues(r io.Reader) *jsonValues {
	j := &jsonValues{}
	if r == nil {
		r = &j.input
	}
	j.dec = jsontext.NewDecoder(r, asSent...)
	return j
}

func (j *jsonValues) reset(document []byte) {
	j.document, j.err = document, nil
	j.input = *bytes.NewBuffer(document)
	j.dec.Reset(&j.input, asSent...)
}

func (j *jsonValues) tag() {}

func (j *jsonValues) offset() int { return int(j.dec.InputOffset()) }

func (j *jsonValues) start() int {
	return len(j.document) - len(bytes.TrimLeft(j.document[j.offset():], ":"+space))
}

func (j *jsonValues) fail(err error) {
	if err != nil && j.err == nil {
		j.err = jsonError(unexpectedEOF(err))
	}
}

func (j *jsonValues) failed() error { return j.err }

func (j *jsonValues) decode(raw []byte, v any) error { return json.Unmarshal(raw, v) }

func (j *jsonValues) kind() jsontext.Kind { return j.dec.PeekKind() }

func (j *jsonValues) skip() {
	if j.err == nil {
		j.fail(j.dec.SkipValue())
	}
}

func (j *jsonValues) raw() []byte {
	if j.err != nil {
		return nil
	}
	v, err := j.dec.ReadValue()
	j.fail(err)
	return v
}

func (j *jsonValues) text() []byte {
	v := jsontext.Value(j.raw())
	switch kind := v.Kind(); {
	case j.err != nil, kind == 'n':
	case kind == '"':
		return unquote(v)
	default:
		j.fail(fmt.Errorf("found %s, expected a string", kind))
	}
	return nil
}

// unquote returns the value of a string that the decoder has read.
func unquote(v []byte) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	b, _ := jsontext.AppendUnquote(nil, v) // the only possible error is invalid UTF-8, which is replaced
	return b
}

func (j *jsonValues) scalar() string {
	switch v := jsontext.Value(j.raw()); v.Kind() {
	case 't', 'f', '0':
		return string(v)
	}
	return ""
}

func (j *jsonValues) version() (rv uint64, digits span) {
	v := j.raw()
	rv, err := strconv.ParseUint(string(bytes.Trim(v, `"`)), 10, 64)
	if j.err == nil && (err != nil || rv == 0 || v[0] != '"') {
		j.fail(fmt.Errorf("resourceVersion %.30s", v))
	}
	return rv, span{j.offset() - len(v) + 1, j.offset() - 1}
}

func (j *jsonValues) enter() { j.open('{', "an object") }

func (j *jsonValues) enterArray() { j.open('[', "items") }

func (j *jsonValues) open(want jsontext.Kind, what string) {
	if j.err != nil {
		return
	}
	tok, err := j.dec.ReadToken()
	if err == nil && tok.Kind() != want {
		err = fmt.Errorf("found %s, expected %s", tok.Kind(), what)
	}
	j.fail(err)
}

func (j *jsonValues) next() (start int, name []byte, ok bool) {
	if !j.goesOn('}') {
		return 0, nil, false
	}
	quoted := j.raw()
	if j.err != nil {
		return 0, nil, false
	}
	return j.offset() - len(quoted), unquote(quoted), true
}

func (j *jsonValues) element() bool { return j.goesOn(']') }

// goesOn reports whether the object or array goes on. If not, it reads its end.
func (j *jsonValues) goesOn(end jsontext.Kind) bool {
	if j.err == nil && j.dec.PeekKind() != end {
		return true
	}
	if j.err == nil {
		_, err := j.dec.ReadToken()
		j.fail(err)
	}
	return false
}

// end accepts white space after the value.
func (j *jsonValues) end(what string) error {
	if j.err != nil {
		return j.err
	}
	if _, err := j.dec.ReadToken(); err != io.EOF {
		if err == nil {
			err = errors.New("data after the " + what)
		}
		j.fail(err)
	}
	return j.err
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

// ErrReplaced is returned for a JSON object whose namespace, name or uid contains U+FFFD, the
// replacement character. JSON cannot express bytes that are not UTF-8, and kube-apiserver writes
// U+FFFD in their place. So two objects may have the same name in JSON, and their order is not
// known. Protobuf and CBOR have the bytes themselves. Names of RBAC's kinds may be such bytes.
var ErrReplaced = errors.New("name, namespace or uid that JSON cannot express")

// replaced reports whether text contains U+FFFD, or bytes that are not UTF-8.
func replaced(text []byte) bool { return bytes.ContainsRune(text, utf8.RuneError) }

// withComma returns a member's place with a comma before it or behind it, so that the rest is an object
// without the member.
func withComma(input []byte, member span) span {
	if input[member.start-1] == ',' { // most often: an encoder writes no spaces
		return span{member.start - 1, member.end}
	}
	if behind := bytes.TrimLeft(input[member.end:], space); behind[0] == ',' {
		return span{member.start, len(input) - len(behind) + 1}
	}
	before := bytes.TrimRight(input[:member.start], space)
	if last := len(before) - 1; before[last] == ',' {
		return span{last, member.end}
	}
	return member
}
