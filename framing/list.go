package framing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ListForm is how kube-apiserver writes lists of one kind. Built-in types have
// Go's struct order and leave kind and apiVersion to the envelope:
//
//	{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":…},…]}⏎
//
// custom resources have sorted keys and complete items:
//
//	{"apiVersion":"ex.io/v1","items":[{"apiVersion":…},…],"kind":"FooList","metadata":{"continue":"","resourceVersion":"7"}}⏎
//
// A ListForm is immutable. Its zero value is not usable.
type ListForm struct {
	kind, apiVersion string
	sorted           bool
}

// ListMeta is what varies in a list's metadata.
type ListMeta struct {
	ResourceVersion    uint64
	Continue           string // "" where nothing follows
	RemainingItemCount int64  // 0 where not known or nothing remains
}

// ParseListForm takes the form from a list that the server sent, which may be
// empty. It fails on a form that it could not reproduce.
func ParseListForm(body []byte) (ListForm, ListMeta, error) {
	var list struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	rv, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: resourceVersion %.30q", list.Metadata.ResourceVersion)
	}
	f := ListForm{kind: list.Kind, apiVersion: list.APIVersion}
	f.sorted = len(body) > 2 && body[2] == 'a'
	meta := ListMeta{ResourceVersion: rv}
	head, tail := f.Envelope(meta)
	if len(body) < len(head)+len(tail) || string(body[:len(head)]) != string(head) || string(body[len(body)-len(tail):]) != string(tail) {
		return ListForm{}, ListMeta{}, errors.New("read list: unknown form")
	}
	return f, meta, nil
}

// TypeMeta returns the members that tell an item's type, where lists of this
// form leave them out of their items, for [Scanner.Item]; nil otherwise.
func (f ListForm) TypeMeta(kind string) []byte {
	if f.sorted {
		return nil
	}
	return fmt.Appendf(nil, `"kind":%q,"apiVersion":%q,`, kind, f.apiVersion)
}

// Envelope returns the bytes of a list before its first and behind its last item.
func (f ListForm) Envelope(m ListMeta) (head, tail []byte) {
	if f.sorted {
		head = fmt.Appendf(nil, `{"apiVersion":%q,"items":[`, f.apiVersion)
		tail = fmt.Appendf(nil, `],"kind":%q,"metadata":{"continue":%q,`, f.kind, m.Continue)
		if m.RemainingItemCount > 0 {
			tail = fmt.Appendf(tail, `"remainingItemCount":%d,`, m.RemainingItemCount)
		}
		return head, fmt.Appendf(tail, "\"resourceVersion\":\"%d\"}}\n", m.ResourceVersion)
	}
	head = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"`, f.kind, f.apiVersion, m.ResourceVersion)
	if m.Continue != "" {
		head = fmt.Appendf(head, `,"continue":%q`, m.Continue)
	}
	if m.RemainingItemCount > 0 {
		head = fmt.Appendf(head, `,"remainingItemCount":%d`, m.RemainingItemCount)
	}
	return append(head, `},"items":[`...), []byte("]}\n")
}

// Item returns the bytes of one item of the list, to be written as open and
// then rest; the first item has no comma. Both are shared and read only.
func (f ListForm) Item(o *Object, first bool) (open string, rest []byte) {
	open = ",{"
	if first {
		open = "{"
	}
	if f.sorted {
		return open, o.JSON()[1:]
	}
	return open, o.JSON()[o.item:]
}

// ListReader reads a list that upstream sends, item by item, in the memory of
// its largest item.
type ListReader struct {
	dec      *jsontext.Decoder
	inItems  bool
	metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	}
}

// NewListReader returns a reader of the list in r.
func NewListReader(r io.Reader) *ListReader {
	return &ListReader{dec: jsontext.NewDecoder(r, asSent...)}
}

// Next returns the next item, which is valid until the next call, and io.EOF
// behind the last one, when the whole list has been read and was well formed.
func (l *ListReader) Next() ([]byte, error) {
	for {
		if l.inItems {
			if l.dec.PeekKind() != ']' {
				v, err := l.value()
				if err != nil {
					return nil, fmt.Errorf("read list: %w", err)
				}
				return v, nil
			}
			l.inItems = false
			if _, err := l.dec.ReadToken(); err != nil {
				return nil, fmt.Errorf("read list: %w", unexpectedEOF(err))
			}
		}
		if err := l.member(); err != nil {
			if err == errListEnd {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("read list: %w", unexpectedEOF(err))
		}
	}
}

var errListEnd = errors.New("end of list")

// member reads on to the items, or one other member of the list.
func (l *ListReader) member() error {
	if l.dec.StackDepth() == 0 {
		tok, err := l.dec.ReadToken()
		if err != nil {
			return err
		}
		if tok.Kind() != '{' {
			return fmt.Errorf("found %s, expected an object", tok.Kind())
		}
	}
	tok, err := l.dec.ReadToken()
	if err != nil {
		return err
	}
	if tok.Kind() == '}' {
		if _, err := l.dec.ReadToken(); err != io.EOF {
			return errors.New("data behind the list")
		}
		return errListEnd
	}
	switch tok.String() {
	case "items":
		if l.dec.PeekKind() == 'n' {
			return l.dec.SkipValue()
		}
		tok, err := l.dec.ReadToken()
		if err == nil && tok.Kind() != '[' {
			err = fmt.Errorf("found %s, expected items", tok.Kind())
		}
		l.inItems = err == nil
		return err
	case "metadata":
		v, err := l.value()
		if err != nil {
			return err
		}
		return json.Unmarshal(v, &l.metadata)
	}
	return l.dec.SkipValue()
}

func (l *ListReader) value() ([]byte, error) {
	v, err := l.dec.ReadValue()
	return v, unexpectedEOF(err)
}

// Metadata returns the list's resourceVersion and continue token, once Next has
// returned io.EOF.
func (l *ListReader) Metadata() (ListMeta, error) {
	rv, err := strconv.ParseUint(l.metadata.ResourceVersion, 10, 64)
	if err != nil {
		return ListMeta{}, fmt.Errorf("read list: resourceVersion %.30q", l.metadata.ResourceVersion)
	}
	return ListMeta{ResourceVersion: rv, Continue: l.metadata.Continue}, nil
}
