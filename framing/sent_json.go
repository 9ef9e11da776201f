package framing

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// sentJSON are the [values] of JSON that a [Scanner] has read. It checks nothing again, so it is some
// times as fast as jsonValues. It panics if the document is no JSON.
type sentJSON struct {
	document []byte
	at       int // behind what has been read
	err      error
}

// The bytes of JSON that end or begin something, for sentJSON.skip.
const (
	isQuote = 1 + iota
	isOpening
	isClosing
)

var jsonClasses = [256]uint8{'"': isQuote, '{': isOpening, '[': isOpening, '}': isClosing, ']': isClosing}

// start skips what stands between values.
func (j *sentJSON) start() int {
	for {
		switch j.document[j.at] {
		case ' ', '\n', '\t', '\r', ':', ',':
			j.at++
		default:
			return j.at
		}
	}
}

func (j *sentJSON) offset() int { return j.at }

func (j *sentJSON) kind() jsontext.Kind {
	switch c := j.document[j.start()]; c {
	case '{', '[', '"', 'n', 't', 'f', '}', ']':
		return jsontext.Kind(c)
	}
	return '0'
}

func (j *sentJSON) enter() {
	j.start()
	j.at++
}

func (j *sentJSON) enterArray() { j.enter() }

func (j *sentJSON) next() (start int, name []byte, ok bool) {
	if !j.element() {
		return 0, nil, false
	}
	start = j.at
	j.at = endOfString(j.document, start)
	return start, unquote(j.document[start:j.at]), true
}

func (j *sentJSON) element() bool {
	if jsonClasses[j.document[j.start()]] != isClosing {
		return true
	}
	j.at++
	return false
}

func (j *sentJSON) text() []byte {
	start := j.start()
	if j.kind() != '"' {
		j.skip()
		return nil
	}
	j.at = endOfString(j.document, start)
	return unquote(j.document[start:j.at])
}

func (j *sentJSON) scalar() string {
	if kind := j.kind(); kind == 'n' || jsonClasses[kind] != 0 {
		j.skip()
		return ""
	}
	return string(j.raw())
}

func (j *sentJSON) raw() []byte {
	start := j.start()
	j.skip()
	return j.document[start:j.at]
}

func (j *sentJSON) skip() {
	b, at := j.document, j.start()
	switch jsonClasses[b[at]] {
	case isQuote:
		at = endOfString(b, at)
	case isOpening:
		at = endOfNested(b, at)
	default:
		for b[at] != ',' && jsonClasses[b[at]] == 0 && b[at] > ' ' {
			at++
		}
	}
	j.at = at
}

// endOfNested returns the place behind an object or array that begins at b[at].
func endOfNested(b []byte, at int) int {
	for depth := 0; ; {
		switch jsonClasses[b[at]] {
		case isQuote:
			at = endOfString(b, at)
			continue
		case isOpening:
			depth++
		case isClosing:
			if depth--; depth == 0 {
				return at + 1
			}
		}
		at++
	}
}

// endOfString returns the place behind a string that begins at b[at]. It looks for a quote or a
// backslash in eight bytes at a time: a byte of x is 0 where b has the one, and the lowest bit that
// nulls sets is in the first such byte.
func endOfString(b []byte, at int) int {
	const each, high = 0x0101010101010101, 0x8080808080808080
	nulls := func(x uint64) uint64 { return (x - each) &^ x & high }
	for at++; ; {
		for len(b)-at >= 8 {
			word := binary.LittleEndian.Uint64(b[at:])
			found := nulls(word^each*'"') | nulls(word^each*'\\')
			if found != 0 {
				at += bits.TrailingZeros64(found) / 8
				break
			}
			at += 8
		}
		switch b[at] {
		case '"':
			return at + 1
		case '\\':
			at++
		}
		at++
	}
}

func (j *sentJSON) reset(document []byte) { *j = sentJSON{document: document} }

func (j *sentJSON) tag() {}

func (j *sentJSON) decode(raw []byte, v any) error { return json.Unmarshal(raw, v) }

func (j *sentJSON) version() (rv uint64, digits span) {
	v := j.raw()
	rv, err := strconv.ParseUint(string(bytes.Trim(v, `"`)), 10, 64)
	j.fail(err)
	return rv, span{j.at - len(v) + 1, j.at - 1}
}

func (j *sentJSON) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

func (j *sentJSON) failed() error { return j.err }

func (j *sentJSON) end(what string) error {
	if j.err == nil && len(bytes.TrimLeft(j.document[j.at:], space)) > 0 {
		j.err = errors.New("data after the " + what)
	}
	return j.err
}
