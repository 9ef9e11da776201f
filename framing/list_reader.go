package framing

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReadList calls f for each item of the list in r, in the memory of its largest item, and returns the
// list's metadata. An item is valid until f returns. The first error of f ends the call, and is returned.
// Any other error says that the list was not well formed.
func ReadList(e Encoding, r io.Reader, f func(item []byte) error) (meta ListMeta, err error) {
	list := newListReader(e, r)
	var item []byte
	for item, err = list.next(); err == nil; item, err = list.next() {
		if err := f(item); err != nil {
			return ListMeta{}, err
		}
	}
	if err == io.EOF {
		meta, err = listMetaOf(list.meta())
	}
	if err != nil {
		return ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	return meta, nil
}

// listReader reads a list item by item.
type listReader interface {
	// next returns the next item, which is valid until the next call; io.EOF after the last one.
	next() (item []byte, err error)
	// meta returns the list's metadata, once next has returned io.EOF.
	meta() *metav1.ListMeta
}

func newListReader(e Encoding, r io.Reader) listReader {
	if e == Protobuf {
		return &protobufList{stream: stream{r: r}}
	}
	l := &objectList{body: boundedReader{r: r}}
	l.in = newValues(e, &l.body)
	l.in.tag()
	l.in.enter()
	return l
}

// objectList reads a list in JSON or CBOR.
type objectList struct {
	body     boundedReader
	in       values
	inItems  bool
	metadata metav1.ListMeta
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

func (l *objectList) meta() *metav1.ListMeta { return &l.metadata }

func (l *objectList) next() ([]byte, error) {
	for {
		l.body.read = 0
		if l.inItems && l.in.element() {
			item := l.in.raw()
			if len(item) > MaxEvent {
				l.in.fail(ErrTooLong)
			}
			return item, l.in.failed()
		}
		l.inItems = false
		if _, name, ok := l.in.next(); ok {
			l.member(string(name))
		} else if err := l.in.end("list"); err != nil {
			return nil, err
		} else {
			return nil, io.EOF
		}
	}
}

// member reads up to the items, or one other member of the list.
func (l *objectList) member(name string) {
	switch name {
	case "items":
		if l.inItems = l.in.kind() != 'n'; l.inItems {
			l.in.enterArray()
		} else {
			l.in.skip()
		}
	case "metadata":
		if raw := l.in.raw(); l.in.failed() == nil {
			l.in.fail(l.in.decode(raw, &l.metadata))
		}
	default:
		l.in.skip()
	}
}
