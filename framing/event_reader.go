package framing

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MaxEvent is the most bytes of one event that an [EventReader] accepts: 16 MiB, as in client-go
// (k8s.io/apimachinery/pkg/runtime/serializer/streaming). By default etcd accepts objects of up to
// 1.5 MiB.
const MaxEvent = 16 << 20

// ErrTooLong is returned for an event of more than MaxEvent bytes.
var ErrTooLong = errors.New("event of more than 16 MiB")

// EventReader splits a watch stream into its events. In [JSON] an event is a line. In [Protobuf] it
// comes after its length in 4 bytes, big endian (k8s.io/apimachinery/pkg/util/framer). In [CBOR] the
// stream is a sequence of data items (RFC 8742). An EventReader has one buffer, which shrinks again
// after a large event. It is used by one goroutine at a time.
type EventReader struct {
	encoding Encoding
	stream

	// How much of the next event has been looked at.
	line int
	item itemEnd
}

// NewEventReader returns an EventReader of the stream in r.
func NewEventReader(e Encoding, r io.Reader) *EventReader {
	return &EventReader{encoding: e, stream: stream{r: r}}
}

// Next returns the next event, which is valid until the next call: a line with its newline, or a
// message without its length. It returns io.EOF at the end of the stream, io.ErrUnexpectedEOF if the
// stream ends within an event, and [ErrTooLong].
func (s *EventReader) Next() ([]byte, error) {
	s.line, s.item = 0, itemEnd{left: 1}
	event, err := s.until(s.length)
	if err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("stream ended within an event: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return event[s.encoding.LengthPrefix():], nil
}

// More reports whether a part of another event has been read.
func (s *EventReader) More() bool { return s.at < len(s.buf) }

// length returns the length of the event that rest begins with, its prefix included; 0 if rest ends
// before the event.
func (s *EventReader) length(rest []byte) (n int, err error) {
	prefix := s.encoding.LengthPrefix()
	switch s.encoding {
	case CBOR:
		return s.item.length(rest)
	case Protobuf:
		if n = prefix; len(rest) >= prefix {
			n += int(min(binary.BigEndian.Uint32(rest), MaxEvent+1))
		}
	default:
		if i := bytes.IndexByte(rest[s.line:], '\n'); i >= 0 {
			n = s.line + i + 1
		} else {
			s.line = len(rest)
			n = len(rest) + 1 // at least
		}
	}
	switch {
	case n > MaxEvent+prefix:
		return 0, ErrTooLong
	case n > len(rest):
		return 0, nil
	}
	return n, nil
}

// stream is a buffer before a stream. It grows to what is asked for.
type stream struct {
	r     io.Reader // nil if all is in buf, which is then read only
	buf   []byte
	at    int   // bytes of buf that have been taken
	taken int64 // bytes taken in all
}

const (
	// leastBuffer is what a buffer has room for at least, and grows by. One of more than keptBuffer
	// bytes goes once it holds less than leastBuffer.
	leastBuffer = 32 << 10
	keptBuffer  = 1 << 20
)

// until takes what length, of the bytes in the buffer, returns the length of. It reads more as long as
// that is 0.
func (s *stream) until(length func(rest []byte) (int, error)) ([]byte, error) {
	for {
		n, err := length(s.buf[s.at:])
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return s.take(n)
		}
		if err := s.more(); err != nil {
			return nil, s.endedWithin(err)
		}
	}
}

// endedWithin returns io.ErrUnexpectedEOF for io.EOF, if bytes have been read that were not taken.
func (s *stream) endedWithin(err error) error {
	if len(s.buf) > s.at {
		return unexpectedEOF(err)
	}
	return err
}

// take returns the next n bytes, which are valid until the next call. It returns io.EOF if the
// stream ends before them, and io.ErrUnexpectedEOF if it ends within them.
func (s *stream) take(n int) ([]byte, error) {
	for len(s.buf)-s.at < n {
		if err := s.more(); err != nil {
			return nil, s.endedWithin(err)
		}
	}
	s.at += n
	s.taken += int64(n)
	return s.buf[s.at-n : s.at], nil
}

// more reads more into the buffer.
func (s *stream) more() error {
	if s.r == nil {
		return io.EOF
	}
	if rest := s.buf[s.at:]; s.at > 0 {
		if s.buf, s.at = s.buf[:0], 0; cap(s.buf) > keptBuffer && len(rest) < leastBuffer {
			s.buf = make([]byte, 0, 2*leastBuffer)
		}
		s.buf = append(s.buf, rest...)
	}
	if len(s.buf) == cap(s.buf) {
		s.buf = slices.Grow(s.buf, leastBuffer)
	}
	n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}
