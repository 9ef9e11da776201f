package framing

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListReader reads a list from upstream item by item, in the memory of its largest item.
type ListReader struct {
	list interface {
		// next returns the next item; io.EOF after the last one.
		next() (item []byte, err error)
		// meta returns the list's metadata, once next has returned io.EOF.
		meta() *metav1.ListMeta
	}
	err error // the error that ended Next
}

// NewListReader returns a reader of the list in r.
func NewListReader(e Encoding, r io.Reader) *ListReader {
	if e == Protobuf {
		return &ListReader{list: &protobufList{stream: stream{r: r}}}
	}
	l := &objectList{body: boundedReader{r: r}}
	l.in = newValues(e, &l.body)
	return &ListReader{list: l}
}

// ReadList calls f for each item of the list in r, and returns the list's metadata. An item is valid
// until f returns. The first error of f ends the call, and is returned.
func ReadList(e Encoding, r io.Reader, f func(item []byte) error) (ListMeta, error) {
	list := NewListReader(e, r)
	for {
		item, err := list.Next()
		if err == io.EOF {
			return list.Metadata()
		}
		if err == nil {
			err = f(item)
		}
		if err != nil {
			return ListMeta{}, err
		}
	}
}

// Next returns the next item, which is valid until the next call. It returns io.EOF after the last
// item, if the whole list was well formed.
func (l *ListReader) Next() (item []byte, err error) {
	if l.err == nil {
		item, l.err = l.list.next()
	}
	if l.err != nil && l.err != io.EOF {
		return nil, fmt.Errorf("read list: %w", l.err)
	}
	return item, l.err
}

// Metadata returns the list's metadata, once Next has returned io.EOF.
func (l *ListReader) Metadata() (ListMeta, error) {
	m, err := listMetaOf(l.list.meta())
	if err != nil {
		return ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	return m, nil
}

// objectList reads a list in JSON or CBOR.
type objectList struct {
	body            boundedReader
	in              values
	opened, inItems bool
	metadata        metav1.ListMeta
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
	if !l.opened {
		l.opened = true
		l.in.tag()
		l.in.enter()
	}
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
