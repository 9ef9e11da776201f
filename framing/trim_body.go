package framing

import (
	"bytes"
	"strings"
)

// Body returns the parts of an answer of kube-apiserver, an object or a list, without the fields of
// t. ok is false if the answer is something else, or in an encoding other than JSON and protobuf.
// It is in memory as a whole, so it should be small. The parts share its bytes. t is not nil, and
// fits the encoding.
func (t *Trim) Body(e Encoding, body []byte) (parts [][]byte, ok bool) {
	switch e {
	case JSON:
		return t.jsonBody(body)
	case Protobuf:
		return t.protobufBody(body)
	}
	return nil, false
}

func (t *Trim) jsonBody(body []byte) (parts [][]byte, ok bool) {
	if o, err := NewScanner(JSON, nil).Item(body, nil); err == nil {
		start := bytes.IndexByte(body, '{') // behind white space
		parts = o.AppendTrimmed(append(parts, body[:start]), t)
		return append(parts, body[start+len(o.Bytes()):]), true
	}
	list, items, rest := newJSONScanner(nil), NewScanner(JSON, nil), 0
	list.reset(body)
	_, err := list.members(func(name []byte) error {
		if string(name) != `"items"` || list.dec.PeekKind() != '[' {
			return list.dec.SkipValue()
		}
		return list.elements(func() error {
			item, err := list.dec.ReadValue()
			if err != nil {
				return err
			}
			start := list.offset() - len(item)
			o, err := items.Item(item, nil)
			if err == nil {
				parts = o.AppendTrimmed(append(parts, body[rest:start]), t)
				rest = list.offset()
			}
			return err
		})
	})
	if err == nil {
		err = list.atEnd()
	}
	return append(parts, body[rest:]), err == nil && rest > 0
}

func (t *Trim) protobufBody(body []byte) (parts [][]byte, ok bool) {
	u, err := openUnknown(body, span{0, len(body)})
	if err != nil {
		return nil, false
	}
	scanner, typeMeta := NewScanner(Protobuf, nil), body[len(magic):u.item]
	if !strings.HasSuffix(string(body[u.kind.start:u.kind.end]), "List") {
		o, err := scanner.Item(body[u.raw.start:u.raw.end], typeMeta)
		if err != nil {
			return nil, false
		}
		return o.AppendTrimmed(nil, t), true
	}
	n := 0
	for c := newCursor(body, u.raw); ; {
		if !c.next() {
			ok = c.err == nil && n > 0
			break
		}
		before := len(parts)
		if body[c.field.start] != tagItem {
			parts = append(parts, body[c.field.start:c.field.end])
		} else if o, err := scanner.Item(c.bytes(), nil); err == nil {
			parts = ListForm{encoding: Protobuf}.AppendTrimmedItem(parts, t, o, false)
		} else {
			return nil, false
		}
		for _, part := range parts[before:] {
			n += len(part)
		}
	}
	head := appendHeader(bytes.Clone(body[:u.item]), tagRaw, n)
	return append(append([][]byte{head}, parts...), []byte(unknownEnd)), ok
}
