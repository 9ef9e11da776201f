package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of ListMeta (k8s.io/apimachinery/pkg/apis/meta/v1, generated.proto) that we read.
const (
	listResourceVersion    = 2
	listContinue           = 3
	listRemainingItemCount = 4
)

func parseProtobufListForm(body []byte) (ListForm, ListMeta, error) {
	fail := func(err error) (ListForm, ListMeta, error) {
		return ListForm{}, ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	u, err := openUnknown(body, span{0, len(body)})
	if err != nil {
		return fail(err)
	}
	metadata, err := open(body, u.raw.start, u.raw.end, tagMetadata)
	if err != nil {
		return fail(err)
	}
	meta, err := protobufListMeta(body[metadata.start:metadata.end])
	if err != nil {
		return fail(err)
	}
	f := ListForm{
		encoding:   Protobuf,
		apiVersion: string(body[u.apiVersion.start:u.apiVersion.end]),
		kind:       string(body[u.kind.start:u.kind.end]),
	}
	head, tail := f.Envelope(meta, 0, 0)
	if string(body) != string(head)+string(tail) {
		return fail(errUnknownForm)
	}
	return f, meta, nil
}

func protobufListMeta(message []byte) (ListMeta, error) {
	var m listMetadata
	c := newCursor(message, span{0, len(message)})
	for c.next() {
		switch c.number {
		case listResourceVersion:
			m.ResourceVersion = c.text()
		case listContinue:
			m.Continue = c.text()
		case listRemainingItemCount:
			m.RemainingItemCount = c.integer()
		}
	}
	if c.err != nil {
		return ListMeta{}, fmt.Errorf("metadata: %w", c.err)
	}
	return m.parse()
}

// protobufEnvelope is Envelope for protobuf, where the length of all items comes before them.
func (f ListForm) protobufEnvelope(m ListMeta, itemBytes int) (head, tail []byte) {
	meta := appendString(nil, tagSelfLink, "")
	meta = appendString(meta, tagListResourceVersion, strconv.FormatUint(m.ResourceVersion, 10))
	meta = appendString(meta, tagContinue, m.Continue)
	if m.RemainingItemCount > 0 {
		meta = protowire.AppendVarint(append(meta, tagRemainingItemCount), uint64(m.RemainingItemCount))
	}
	if m.ShardSelector != "" {
		info := appendString(nil, tagShardSelector, m.ShardSelector)
		meta = append(appendHeader(meta, tagShardInfo, len(info)), info...)
	}
	head = append([]byte(magic), protobufTypeMeta(f.apiVersion, f.kind)...)
	head = appendHeader(head, tagRaw, headerLen(len(meta))+len(meta)+itemBytes)
	head = appendHeader(head, tagMetadata, len(meta))
	return append(head, meta...), []byte(unknownEnd)
}

// protobufListReader is the [ListReader] of [Protobuf].
type protobufListReader struct {
	stream
	opened bool   // the envelope's head has been read
	rest   uint64 // bytes of items still to come
	meta   ListMeta
	err    error // the error that ended Next
}

// Next implements [ListReader]. It returns an item without its tag and length.
func (l *protobufListReader) Next() (item []byte, err error) {
	if l.err != nil {
		return nil, l.err
	}
	item, err = l.next()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read list: byte %d: %w", l.taken, err)
	}
	l.err = err
	return item, err
}

func (l *protobufListReader) next() ([]byte, error) {
	if !l.opened {
		if err := l.open(); err != nil {
			return nil, unexpectedEOF(err)
		}
		l.opened = true
	}
	if l.rest == 0 {
		return nil, l.end()
	}
	return l.nextOf(tagItem)
}

// open reads up to the first item.
func (l *protobufListReader) open() error {
	if err := l.expect(magic); err != nil {
		return err
	}
	n, err := l.header(tagTypeMeta)
	if err != nil {
		return err
	}
	typeMeta, err := l.bounded(n)
	if err != nil {
		return err
	}
	if _, _, err := openTypeMeta(typeMeta, span{0, len(typeMeta)}); err != nil {
		return err
	}
	if l.rest, err = l.header(tagRaw); err != nil {
		return err
	}
	metadata, err := l.nextOf(tagMetadata)
	if err != nil {
		return err
	}
	l.meta, err = protobufListMeta(metadata)
	return err
}

// end reads the bytes after the last item. It returns io.EOF if nothing follows them.
func (l *protobufListReader) end() error {
	if err := l.expect(unknownEnd); err != nil {
		return unexpectedEOF(err)
	}
	_, err := l.take(1)
	if err == nil {
		err = errors.New("data after the list")
	}
	return err
}

// nextOf reads the next field of the list.
func (l *protobufListReader) nextOf(tag byte) ([]byte, error) {
	before := l.taken
	n, err := l.header(tag)
	if err != nil {
		return nil, unexpectedEOF(err)
	}
	header := uint64(l.taken - before)
	if header > l.rest || n > l.rest-header {
		return nil, fmt.Errorf("length %d ends past the list", n)
	}
	l.rest -= header + n
	return l.bounded(n)
}

func (l *protobufListReader) expect(text string) error {
	b, err := l.take(len(text))
	if err == nil && string(b) != text {
		err = fmt.Errorf("found % x, expected % x", b, text)
	}
	return err
}

// header reads what appendHeader writes.
func (l *protobufListReader) header(tag byte) (n uint64, err error) {
	found, err := l.ReadByte()
	if err != nil {
		return 0, err
	}
	if found != tag {
		return 0, fmt.Errorf("found tag %02x, expected %02x", found, tag)
	}
	before := l.taken
	if n, err = binary.ReadUvarint(l); err != nil {
		return 0, err
	}
	if size := l.taken - before; size != int64(protowire.SizeVarint(n)) {
		return 0, fmt.Errorf("length %d takes %d bytes", n, size)
	}
	return n, nil
}

// ReadByte implements [io.ByteReader].
func (l *protobufListReader) ReadByte() (byte, error) {
	b, err := l.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// bounded takes n bytes, a length that a header has given.
func (l *protobufListReader) bounded(n uint64) ([]byte, error) {
	if n > MaxEvent {
		return nil, ErrTooLong
	}
	b, err := l.take(int(n))
	return b, unexpectedEOF(err)
}

// Metadata implements [ListReader].
func (l *protobufListReader) Metadata() (ListMeta, error) { return l.meta, nil }
