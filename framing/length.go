package framing

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// lengthReader is the [EventReader] of [Protobuf]. Each event comes after its length in 4 bytes,
// big endian (k8s.io/apimachinery/pkg/util/framer).
type lengthReader struct{ exactReader }

func newLengthReader(r io.Reader) *lengthReader { return &lengthReader{newExactReader(r)} }

// Next implements [EventReader]. It returns the event without its length.
func (l *lengthReader) Next() ([]byte, error) {
	prefix, err := l.take(prefixLen)
	if err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("stream ended within an event: %w", err)
	}
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(prefix)
	if n > MaxEvent {
		return nil, ErrTooLong
	}
	event, err := l.take(int(n))
	if err = unexpectedEOF(err); err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("stream ended within an event: %w", err)
	}
	return event, err
}

// exactReader reads a given number of bytes of a stream.
type exactReader struct {
	r    *bufio.Reader
	long []byte
	at   int64 // bytes taken
}

func newExactReader(r io.Reader) exactReader {
	return exactReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// take returns the next n bytes, which are valid until the next call. It returns io.EOF if the
// stream ends before them, and io.ErrUnexpectedEOF if it ends within them.
func (x *exactReader) take(n int) ([]byte, error) {
	if cap(x.long) > 1<<20 {
		x.long = nil
	}
	if n > x.r.Size() {
		return x.takeLong(n)
	}
	b, err := x.r.Peek(n)
	if err != nil {
		if err == io.EOF && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	x.at += int64(n)
	_, _ = x.r.Discard(n) // it is buffered
	return b, nil
}

// ReadByte implements [io.ByteReader].
func (x *exactReader) ReadByte() (byte, error) {
	b, err := x.r.ReadByte()
	if err == nil {
		x.at++
	}
	return b, err
}

// takeLong takes more bytes than the buffer holds.
func (x *exactReader) takeLong(n int) ([]byte, error) {
	x.long = slices.Grow(x.long[:0], n)[:n]
	if _, err := io.ReadFull(x.r, x.long); err != nil {
		return nil, err
	}
	x.at += int64(n)
	return x.long, nil
}
