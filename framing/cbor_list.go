package framing

import (
	"errors"
	"reflect"
	"strconv"
)

func parseCBORListForm(body []byte) (f ListForm, m listMetadata, is func(head, tail []byte) bool, err error) {
	var list map[string]any
	var typed listEnvelope
	err = errors.Join(decoding.Unmarshal(body, &list), decoding.Unmarshal(body, &typed))
	f = ListForm{encoding: CBOR, kind: typed.Kind, apiVersion: typed.APIVersion, nullItems: list["items"] == nil}
	metadata, _ := list["metadata"].(map[string]any)
	_, f.custom = metadata["continue"]
	return f, typed.Metadata, func(head, _ []byte) bool {
		var again map[string]any
		return decoding.Unmarshal(head, &again) == nil && reflect.DeepEqual(again, list)
	}, err
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

// cborItem is Item for CBOR. If the envelope names the type, the item has no type and a new count
// of its entries.
func (f ListForm) cborItem(o *Object) (open string, rest []byte) {
	if f.typed() {
		return "", o.Bytes()[len(selfDescribed):]
	}
	return cborItemHead(o.Bytes(), nil), o.Bytes()[o.item:o.itemEnd]
}
