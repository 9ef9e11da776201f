package framing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// In protobuf the items have no type: see the package comment. In CBOR the members are the same as in
// JSON, in any order.
//
// A ListForm is immutable. Its zero value is not usable.
type ListForm struct {
	encoding         Encoding
	kind, apiVersion string
	custom           bool // of custom resources: in JSON with sorted members, in CBOR with an empty continue
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
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   metav1.ListMeta `json:"metadata"`
}

// listMetaOf returns what a list's metadata says, without its shardInfo.
func listMetaOf(m *metav1.ListMeta) (ListMeta, error) {
	rv, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil {
		return ListMeta{}, fmt.Errorf("resourceVersion %.30q", m.ResourceVersion)
	}
	remaining := cmp.Or(m.RemainingItemCount, new(int64))
	return ListMeta{ResourceVersion: rv, Continue: m.Continue, RemainingItemCount: *remaining}, nil
}

// ParseListForm takes the form from an empty list that the server sent. It returns an error for a
// form that it could not reproduce.
func ParseListForm(e Encoding, body []byte) (f ListForm, meta ListMeta, err error) {
	parse := parseJSONListForm
	switch e {
	case Protobuf:
		parse = parseProtobufListForm
	case CBOR:
		parse = parseCBORListForm
	}
	f, metadata, err := parse(body)
	if err == nil {
		meta, err = listMetaOf(&metadata)
	}
	if err == nil && !f.wrote(body, meta) {
		err = errors.New("unknown form")
	}
	if err != nil {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	return f, meta, nil
}

// wrote reports whether the list is one that is written in this form.
func (f ListForm) wrote(list []byte, m ListMeta) bool {
	head, tail := f.Envelope(m, 0, 0)
	if f.encoding == CBOR {
		var is, was any
		return decoding.Unmarshal(head, &is) == nil && decoding.Unmarshal(list, &was) == nil && reflect.DeepEqual(is, was)
	}
	return len(list) >= len(head)+len(tail) && bytes.HasPrefix(list, head) && bytes.HasSuffix(list, tail)
}

func parseJSONListForm(body []byte) (f ListForm, m metav1.ListMeta, err error) {
	var list listEnvelope
	err = json.Unmarshal(body, &list)
	return ListForm{
		kind:       list.Kind,
		apiVersion: list.APIVersion,
		custom:     len(body) > 2 && body[2] == 'a',
		nullItems:  bytes.HasSuffix(body, []byte(nullItems)),
	}, list.Metadata, err
}

// typed reports whether items have kind and apiVersion.
func (f ListForm) typed() bool { return f.custom || f.kind == partialObjectMetadataList }

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
	case f.typed():
		return nil
	case f.encoding == CBOR:
		return cborTypeMeta(f.apiVersion, kind)
	}
	return fmt.Appendf(nil, `"kind":%q,"apiVersion":%q,`, kind, f.apiVersion)
}

// Envelope returns the bytes of a list before its first and after its last item. Between them come
// the given number of items, in itemBytes bytes.
func (f ListForm) Envelope(m ListMeta, items, itemBytes int) (head, tail []byte) {
	// kube-apiserver writes no shardInfo into lists of custom resources, which are no Go structs, nor
	// into lists of metadata, into which it copies the other members one by one.
	if f.typed() {
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

// nullItems ends a list whose items are null.
const nullItems = `,"items":null}` + "\n"

// AppendItem appends the parts of one item of the list, as clients of t get it, to dst. The first item has
// no comma. Read only.
func (f ListForm) AppendItem(dst [][]byte, t *Trim, o *Object, first bool) [][]byte {
	o, splices := o.heldAs(t, new(spliceBuffer)[:0])
	opening, from := itemOpen, int(o.item)
	if first {
		opening = opening[1:]
	}
	switch {
	case f.encoding == Protobuf:
		opening = nil
	case f.encoding == CBOR && f.typed():
		opening, from = nil, len(selfDescribed)
	case f.encoding == CBOR:
		opening = cborItemHead(o.held(), splices)
	case f.typed():
		from = 1
	}
	if opening != nil {
		dst = append(dst, opening)
	}
	return appendSpliced(dst, o.held()[:o.itemEnd], from, splices)
}

var itemOpen = []byte(",{")

// partialObjectMetadataList is the kind of lists of metadata. Their items have their type, in
// struct order (k8s.io/apimachinery/pkg/apis/meta/v1, type PartialObjectMetadataList).
const (
	partialObjectMetadata     = "PartialObjectMetadata"
	partialObjectMetadataList = partialObjectMetadata + "List"
)

func parseCBORListForm(body []byte) (f ListForm, m metav1.ListMeta, err error) {
	var list map[string]any
	var typed listEnvelope
	err = errors.Join(decoding.Unmarshal(body, &list), decoding.Unmarshal(body, &typed))
	f = ListForm{encoding: CBOR, kind: typed.Kind, apiVersion: typed.APIVersion, nullItems: list["items"] == nil}
	metadata, _ := list["metadata"].(map[string]any)
	_, f.custom = metadata["continue"]
	return f, typed.Metadata, err
}

// cborTypeMeta returns the entries of an object that name its type.
func cborTypeMeta(apiVersion, kind string) []byte {
	return appendItems(nil, "kind", kind, "apiVersion", apiVersion)
}

// cborEnvelope is Envelope for CBOR. The number of items comes before them, and nothing comes
// after.
func (f ListForm) cborEnvelope(m ListMeta, n int) (head, tail []byte) {
	metadata, entries := appendItems(nil, "resourceVersion", strconv.FormatUint(m.ResourceVersion, 10)), uint64(1)
	if f.custom || m.Continue != "" {
		metadata = appendItems(metadata, "continue", m.Continue)
		entries++
	}
	if m.RemainingItemCount > 0 {
		metadata = appendItems(metadata, "remainingItemCount")
		metadata = appendItemHead(metadata, majorNumber, uint64(m.RemainingItemCount))
		entries++
	}
	if m.ShardSelector != "" {
		metadata = appendItemHead(appendItems(metadata, "shardInfo"), majorMap, 1)
		metadata = appendItems(metadata, "selector", m.ShardSelector)
		entries++
	}
	head = appendItemHead([]byte(selfDescribed), majorMap, 4)
	head = append(head, cborTypeMeta(f.apiVersion, f.kind)...)
	head = appendItemHead(appendItems(head, "metadata"), majorMap, entries)
	head = appendItems(append(head, metadata...), "items")
	if f.nullItems && n == 0 {
		return append(head, null), nil
	}
	return appendItemHead(head, majorArray, uint64(n)), nil
}
