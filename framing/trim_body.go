package framing

import (
	"bytes"
	"slices"
	"strings"
)

// Body returns the parts of an answer of kube-apiserver, an object or a list, in the form of t: nil for
// an object that is outside of the selection. ok is false if the answer is something else, or in an
// encoding other than JSON and protobuf. It is in memory as a whole, so it should be small. The parts
// share its bytes. t is not nil, and of the encoding.
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
		if !o.In(t, nil) {
			return nil, true
		}
		start := bytes.IndexByte(body, '{') // behind white space
		parts = o.AppendTrimmed(append(parts, body[:start]), t)
		return append(parts, body[start+len(o.Bytes()):]), true
	}
	in, items := newValues(JSON, nil), NewScanner(JSON, nil)
	in.reset(body)
	end, some, list := 0, false, false // of the last item; one stays; there may be items
	for _, name := range members(in) {
		if string(name) != "items" || in.kind() != '[' {
			list = list || string(name) == "items" && in.kind() == 'n' // of metadata, without any
			in.skip()
			continue
		}
		list = true
		for in.enterArray(); in.element(); {
			item := in.raw()
			before := body[end : in.offset()-len(item)]
			o, err := items.Item(item, nil)
			if in.fail(err); err != nil {
				break
			}
			if end == 0 || some && o.In(t, nil) {
				parts = append(parts, before)
			}
			if end = in.offset(); o.In(t, nil) {
				parts, some = o.AppendTrimmed(parts, t), true
			}
		}
	}
	return append(parts, body[end:]), in.end("list") == nil && list
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
		if !o.In(t, nil) {
			return nil, true
		}
		return o.AppendTrimmed(nil, t), true
	}
	c := newCursor(body, u.raw)
	for c.next() {
		if body[c.field.start] != tagItem {
			parts = append(parts, body[c.field.start:c.field.end])
			continue
		}
		o, err := scanner.Item(c.bytes(), nil)
		if err != nil {
			return nil, false
		}
		if o.In(t, nil) {
			parts = ListForm{encoding: Protobuf}.AppendItem(parts, t, o, false)
		}
	}
	head := appendHeader(bytes.Clone(body[:u.item]), tagRaw, lengthOf(parts))
	return slices.Concat([][]byte{head}, parts, [][]byte{[]byte(unknownEnd)}), c.err == nil && len(parts) > 0
}
