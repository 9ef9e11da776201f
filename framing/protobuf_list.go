package framing

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func parseProtobufListForm(body []byte) (f ListForm, m metav1.ListMeta, err error) {
	u, err := openUnknown(body, span{0, len(body)})
	if err != nil {
		return f, m, err
	}
	metadata, err := open(body, u.raw.start, u.raw.end, tagMetadata)
	if err != nil {
		return f, m, err
	}
	f = ListForm{
		encoding:   Protobuf,
		apiVersion: string(body[u.apiVersion.start:u.apiVersion.end]),
		kind:       string(body[u.kind.start:u.kind.end]),
	}
	m, err = protobufListMeta(body[metadata.start:metadata.end])
	return f, m, err
}

func protobufListMeta(message []byte) (m metav1.ListMeta, err error) {
	if err = m.Unmarshal(message); err != nil {
		err = fmt.Errorf("metadata: %w", err)
	}
	return m, err
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

// protobufList reads a list in protobuf. It returns items without their tags and lengths.
type protobufList struct {
	stream
	opened   bool   // the envelope's head has been read
	rest     uint64 // bytes of items still to come
	metadata metav1.ListMeta
}

func (l *protobufList) meta() *metav1.ListMeta { return &l.metadata }

func (l *protobufList) next() ([]byte, error) {
	if !l.opened {
		l.opened = true
		if err := l.open(); err != nil {
			return nil, l.failed(err)
		}
	}
	if l.rest == 0 {
		return nil, l.end()
	}
	item, err := l.nextOf(tagItem)
	return item, l.failed(err)
}

// failed says where an error is. The list must not end there.
func (l *protobufList) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("byte %d: %w", l.taken, unexpectedEOF(err))
}

// end reads the bytes after the last item. It returns io.EOF if nothing follows them.
func (l *protobufList) end() error {
	err := l.expect(unknownEnd)
	if err != nil {
		return l.failed(err)
	}
	if _, err = l.take(1); err == io.EOF {
		return err
	}
	if err == nil {
		err = errors.New("data after the list")
	}
	return l.failed(err)
}

// open reads up to the first item.
func (l *protobufList) open() error {
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
	l.metadata, err = protobufListMeta(metadata)
	return err
}

// nextOf reads the next field of the list.
func (l *protobufList) nextOf(tag byte) ([]byte, error) {
	before := l.taken
	n, err := l.header(tag)
	if err != nil {
		return nil, err
	}
	header := uint64(l.taken - before)
	if header > l.rest || n > l.rest-header {
		return nil, fmt.Errorf("length %d ends past the list", n)
	}
	l.rest -= header + n
	return l.bounded(n)
}

func (l *protobufList) expect(text string) error {
	b, err := l.take(len(text))
	if err == nil && string(b) != text {
		err = fmt.Errorf("found % x, expected % x", b, text)
	}
	return err
}

// header reads what appendHeader writes.
func (l *protobufList) header(tag byte) (n uint64, err error) {
	_, err = l.until(func(rest []byte) (size int, err error) {
		switch {
		case len(rest) == 0:
			return 0, nil
		case rest[0] != tag:
			return 0, fmt.Errorf("found tag %02x, expected %02x", rest[0], tag)
		}
		n, size = protowire.ConsumeVarint(rest[1:])
		switch err := protowire.ParseError(size); {
		case err == io.ErrUnexpectedEOF:
			return 0, nil
		case size < 0:
			return 0, err
		case size != protowire.SizeVarint(n):
			return 0, fmt.Errorf("length %d takes %d bytes", n, size)
		}
		return 1 + size, nil
	})
	return n, err
}

// bounded takes n bytes, a length that a header has given.
func (l *protobufList) bounded(n uint64) ([]byte, error) {
	if n > MaxEvent {
		return nil, ErrTooLong
	}
	return l.take(int(n))
}
