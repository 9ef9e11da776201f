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

// ListForm is how kube-apiserver writes lists of one kind. Lists of built-in types have their
// members in the order of the Go struct, and only the envelope has kind and apiVersion:
//
//	{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":…},…]}⏎
//
// Lists of metadata have the same order, items with kind and apiVersion, and null for no items
// (seen on 1.36.3):
//
//	{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":null}⏎
//
// Lists of custom resources have sorted members and complete items:
//
//	{"apiVersion":"ex.io/v1","items":[{"apiVersion":…},…],"kind":"FooList","metadata":{"continue":"","resourceVersion":"7"}}⏎
//
// In protobuf the envelope is a runtime.Unknown, and the items have no type:
//
//	k8s\0 TypeMeta{v1, PodList} raw{ListMeta, item, …} contentEncoding contentType
//
// In CBOR the members are the same as in JSON, in any order.
//
// A ListForm is immutable. Its zero value is not usable.
type ListForm struct {
	encoding         Encoding
	kind, apiVersion string
	custom           bool // of custom resources: in JSON with sorted members, in CBOR with an empty continue
	typed            bool // items have kind and apiVersion
	nullItems        bool // no items are null instead of []
}

// ListMeta is the part of a list's metadata that varies.
type ListMeta struct {
	ResourceVersion    uint64
	Continue           string // "" if nothing follows
	RemainingItemCount int64  // 0 if unknown or if nothing remains
	// ShardSelector is what the items were selected by, as kube-apiserver repeats it in shardInfo;
	// "" for a list that is no shard. Lists of metadata and of custom resources do not name it
	// (seen on 1.36.3).
	ShardSelector string
}

// listEnvelope is a list without its items, in JSON and CBOR.
type listEnvelope struct {
	Kind       string       `json:"kind"`
	APIVersion string       `json:"apiVersion"`
	Metadata   listMetadata `json:"metadata"`
}

type listMetadata struct {
	ResourceVersion    string `json:"resourceVersion"`
	Continue           string `json:"continue"`
	RemainingItemCount int64  `json:"remainingItemCount"`
}

func (m listMetadata) parse() (ListMeta, error) {
	rv, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil {
		return ListMeta{}, fmt.Errorf("resourceVersion %.30q", m.ResourceVersion)
	}
	return ListMeta{ResourceVersion: rv, Continue: m.Continue, RemainingItemCount: m.RemainingItemCount}, nil
}

// metadataOf is what a [ListReader] has read of a list's metadata.
type metadataOf struct{ metadata listMetadata }

// Metadata implements [ListReader].
func (l *metadataOf) Metadata() (ListMeta, error) {
	m, err := l.metadata.parse()
	if err != nil {
		return ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	return m, nil
}

var errUnknownForm = errors.New("unknown form")

// ParseListForm takes the form from an empty list that the server sent. It returns an error for a
// form that it could not reproduce.
func ParseListForm(e Encoding, body []byte) (ListForm, ListMeta, error) {
	switch e {
	case Protobuf:
		return parseProtobufListForm(body)
	case CBOR:
		return parseCBORListForm(body)
	}
	var list listEnvelope
	if err := json.Unmarshal(body, &list); err != nil {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	meta, err := list.Metadata.parse()
	if err != nil {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	f := ListForm{kind: list.Kind, apiVersion: list.APIVersion}
	f.custom = len(body) > 2 && body[2] == 'a'
	f.typed = f.custom || list.Kind == partialObjectMetadataList
	f.nullItems = bytes.HasSuffix(body, []byte(nullItems))
	head, tail := f.Envelope(meta, 0, 0)
	if len(body) < len(head)+len(tail) || !bytes.HasPrefix(body, head) || !bytes.HasSuffix(body, tail) {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", errUnknownForm)
	}
	return f, meta, nil
}

// TypeMeta returns the members that name an item's type, for [Scanner.Item], if only the envelope
// of such lists names it; nil otherwise. The items of a PartialObjectMetadataList are always of
// kind PartialObjectMetadata.
func (f ListForm) TypeMeta(kind string) []byte {
	if f.kind == partialObjectMetadataList {
		kind = partialObjectMetadata
	}
	switch {
	case f.encoding == Protobuf:
		return protobufTypeMeta(f.apiVersion, kind)
	case f.typed:
		return nil
	case f.encoding == CBOR:
		return cborTypeMeta(f.apiVersion, kind)
	}
	return fmt.Appendf(nil, `"kind":%q,"apiVersion":%q,`, kind, f.apiVersion)
}

// Envelope returns the bytes of a list before its first and after its last item. Between them come
// the given number of items, in itemBytes bytes.
func (f ListForm) Envelope(m ListMeta, items, itemBytes int) (head, tail []byte) {
	if !f.namesShards() {
		m.ShardSelector = ""
	}
	switch f.encoding {
	case Protobuf:
		return f.protobufEnvelope(m, itemBytes)
	case CBOR:
		return f.cborEnvelope(m, items)
	}
	if f.custom {
		head = fmt.Appendf(nil, `{"apiVersion":%q,"items":[`, f.apiVersion)
		tail = fmt.Appendf(nil, `],"kind":%q,"metadata":{"continue":%q,`, f.kind, m.Continue)
		if m.RemainingItemCount > 0 {
			tail = fmt.Appendf(tail, `"remainingItemCount":%d,`, m.RemainingItemCount)
		}
		return head, fmt.Appendf(tail, "\"resourceVersion\":\"%d\"}}\n", m.ResourceVersion)
	}
	head = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"`,
		f.kind, f.apiVersion, m.ResourceVersion)
	if m.Continue != "" {
		head = fmt.Appendf(head, `,"continue":%q`, m.Continue)
	}
	if m.RemainingItemCount > 0 {
		head = fmt.Appendf(head, `,"remainingItemCount":%d`, m.RemainingItemCount)
	}
	if m.ShardSelector != "" {
		head = fmt.Appendf(head, `,"shardInfo":{"selector":%q}`, m.ShardSelector)
	}
	head = append(head, '}')
	if f.nullItems && items == 0 {
		return head, []byte(nullItems)
	}
	return append(head, `,"items":[`...), []byte("]}\n")
}

// namesShards reports whether kube-apiserver writes shardInfo into such lists. It does not into
// lists of custom resources, which are no Go structs, nor into lists of metadata, into which it
// copies the other members one by one.
func (f ListForm) namesShards() bool { return !f.custom && f.kind != partialObjectMetadataList }

// nullItems ends a list whose items are null.
const nullItems = `,"items":null}` + "\n"

// Item returns the bytes of one item of the list: open, and then rest. The first item has no comma.
// Both are shared and read only.
func (f ListForm) Item(o *Object, first bool) (open string, rest []byte) {
	item := o.Bytes()[o.item:o.itemEnd]
	switch {
	case f.encoding == CBOR:
		return f.cborItem(o)
	case f.encoding == Protobuf:
		return "", item
	case f.typed:
		item = o.Bytes()[1:]
	}
	if first {
		return "{", item
	}
	return ",{", item
}

// partialObjectMetadataList is the kind of lists of metadata. Their items have their type, in
// struct order (k8s.io/apimachinery/pkg/apis/meta/v1, type PartialObjectMetadataList).
const (
	partialObjectMetadata     = "PartialObjectMetadata"
	partialObjectMetadataList = partialObjectMetadata + "List"
)

// jsonListReader is the [ListReader] of [JSON].
type jsonListReader struct {
	metadataOf
	body    boundedReader
	dec     *jsontext.Decoder
	inItems bool
}

func newJSONListReader(r io.Reader) *jsonListReader {
	l := &jsonListReader{body: boundedReader{r: r}}
	l.dec = jsontext.NewDecoder(&l.body, asSent...)
	return l
}

// boundedReader returns [ErrTooLong] after more than MaxEvent bytes without a result.
type boundedReader struct {
	r    io.Reader
	read int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read > MaxEvent {
		return 0, ErrTooLong
	}
	n, err := b.r.Read(p)
	b.read += n
	return n, err
}

// Next implements [ListReader].
func (l *jsonListReader) Next() ([]byte, error) {
	for {
		l.body.read = 0
		if l.inItems {
			if l.dec.PeekKind() != ']' {
				v, err := l.value()
				if err == nil && len(v) > MaxEvent {
					err = ErrTooLong
				}
				if err != nil {
					return nil, fmt.Errorf("read list: %w", jsonError(err))
				}
				return v, nil
			}
			l.inItems = false
			if _, err := l.dec.ReadToken(); err != nil {
				return nil, fmt.Errorf("read list: %w", jsonError(unexpectedEOF(err)))
			}
		}
		if err := l.member(); err != nil {
			if err == errListEnd {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("read list: %w", jsonError(unexpectedEOF(err)))
		}
	}
}

var errListEnd = errors.New("end of list")

// member reads up to the items, or one other member of the list.
func (l *jsonListReader) member() error {
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
			return errors.New("data after the list")
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

func (l *jsonListReader) value() ([]byte, error) {
	v, err := l.dec.ReadValue()
	return v, unexpectedEOF(err)
}
