package framing

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
)

func parseCBORListForm(body []byte) (ListForm, ListMeta, error) {
	fail := func(err error) (ListForm, ListMeta, error) {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	var list map[string]any
	var typed listEnvelope
	if err := errors.Join(decoding.Unmarshal(body, &list), decoding.Unmarshal(body, &typed)); err != nil {
		return fail(err)
	}
	meta, err := typed.Metadata.parse()
	if err != nil {
		return fail(err)
	}
	f := ListForm{encoding: CBOR, kind: typed.Kind, apiVersion: typed.APIVersion}
	metadata, _ := list["metadata"].(map[string]any)
	_, f.custom = metadata["continue"]
	f.typed = f.custom || f.kind == partialObjectMetadataList
	f.nullItems = list["items"] == nil
	head, _ := f.Envelope(meta, 0, 0)
	var again map[string]any
	if err := decoding.Unmarshal(head, &again); err != nil || !reflect.DeepEqual(again, list) {
		return fail(errUnknownForm)
	}
	return f, meta, nil
}

// cborTypeMeta returns the entries of an object that name its type.
func cborTypeMeta(apiVersion, kind string) []byte {
	return appendItems(nil, "kind", kind, "apiVersion", apiVersion)
}

// cborEnvelope is Envelope for CBOR. The number of items comes before them, and nothing comes
// after.
func (f ListForm) cborEnvelope(m ListMeta, n int) (head, tail []byte) {
	withContinue, entries := f.custom || m.Continue != "", uint64(1)
	if withContinue {
		entries++
	}
	if m.RemainingItemCount > 0 {
		entries++
	}
	if m.ShardSelector != "" {
		entries++
	}
	head = appendItemHead([]byte(selfDescribed), majorMap, 4)
	head = append(head, cborTypeMeta(f.apiVersion, f.kind)...)
	head = appendItemHead(appendItems(head, "metadata"), majorMap, entries)
	head = appendItems(head, "resourceVersion", strconv.FormatUint(m.ResourceVersion, 10))
	if withContinue {
		head = appendItems(head, "continue", m.Continue)
	}
	if m.RemainingItemCount > 0 {
		head = appendItemHead(appendItems(head, "remainingItemCount"), majorNumber, uint64(m.RemainingItemCount))
	}
	if m.ShardSelector != "" {
		head = appendItemHead(appendItems(head, "shardInfo"), majorMap, 1)
		head = appendItems(head, "selector", m.ShardSelector)
	}
	head = appendItems(head, "items")
	if f.nullItems && n == 0 {
		return append(head, null), nil
	}
	return appendItemHead(head, majorArray, uint64(n)), nil
}

// cborItem is Item for CBOR. If the envelope names the type, the item has no type and a new count
// of its entries.
func (f ListForm) cborItem(o *Object) (open string, rest []byte) {
	if f.typed {
		return "", o.Bytes()[len(selfDescribed):]
	}
	return cborItemHead(o.Bytes(), nil), o.Bytes()[o.item:o.itemEnd]
}

// cborListReader is the [ListReader] of [CBOR].
type cborListReader struct {
	eventReader
	metadataOf
	opened  bool
	entries uint64 // entries of the list still to come
	items   uint64 // items still to come
	err     error  // the error that ended Next
}

// Next implements [ListReader].
func (l *cborListReader) Next() (item []byte, err error) {
	if l.err != nil {
		return nil, l.err
	}
	if item, err = l.next(); err != nil {
		if err != errListEnd {
			l.err = fmt.Errorf("read list: %w", unexpectedEOF(err))
		} else {
			l.err = io.EOF
		}
	}
	return item, l.err
}

func (l *cborListReader) next() ([]byte, error) {
	if !l.opened {
		if err := l.open(); err != nil {
			return nil, err
		}
		l.opened = true
	}
	for l.items == 0 {
		if l.entries == 0 {
			return nil, l.end()
		}
		l.entries--
		if err := l.entry(); err != nil {
			return nil, err
		}
	}
	l.items--
	return l.eventReader.Next()
}

// open reads up to the list's first entry.
func (l *cborListReader) open() error {
	tag, err := l.expect(majorTag)
	if err == nil && tag != tagSelfDescribed {
		err = fmt.Errorf("tag %d, expected %d", tag, tagSelfDescribed)
	}
	if err == nil {
		l.entries, err = l.expect(majorMap)
	}
	return err
}

// entry reads up to the items, or one other entry of the list.
func (l *cborListReader) entry() error {
	item, err := l.eventReader.Next()
	if err != nil {
		return err
	}
	c := itemCursor{input: item}
	name := string(c.text())
	if c.err != nil {
		return c.err
	}
	switch name {
	case "items":
		l.items, err = l.expect(majorArray)
		return err
	case "metadata":
		if item, err = l.eventReader.Next(); err != nil {
			return err
		}
		return decoding.Unmarshal(item, &l.metadata)
	}
	_, err = l.eventReader.Next()
	return err
}

// expect reads the head of an item of major type want. null counts as an empty item.
func (l *cborListReader) expect(want byte) (arg uint64, err error) {
	major, arg, err := l.head()
	switch {
	case err != nil:
		return 0, err
	case major == null>>5 && arg == null&0x1f:
		return 0, nil
	case major != want:
		return 0, fmt.Errorf("found major type %d, expected %d", major, want)
	}
	return arg, nil
}

// head reads one head.
func (l *cborListReader) head() (major byte, arg uint64, err error) {
	for {
		major, arg, size, err := itemHead(l.buf[l.at:])
		if err != nil || size > 0 {
			l.at += size
			return major, arg, err
		}
		if err := l.more(); err != nil {
			return 0, 0, err
		}
	}
}

// end returns errListEnd if nothing follows the list.
func (l *cborListReader) end() error {
	if _, _, err := l.head(); err != io.EOF {
		if err == nil {
			err = errors.New("data after the list")
		}
		return err
	}
	return errListEnd
}
