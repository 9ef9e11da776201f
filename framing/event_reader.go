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

// eventReader is the [EventReader] of all encodings. In [JSON] an event is a line. In [Protobuf] it
// comes after its length in 4 bytes, big endian (k8s.io/apimachinery/pkg/util/framer). In [CBOR] the
// stream is a sequence of data items (RFC 8742).
type eventReader struct {
	encoding Encoding
	stream

	// How much of the next event has been looked at.
	line int
	item itemEnd
}

// Next implements [EventReader]. It returns a line with its newline, and a message without its length.
func (s *eventReader) Next() ([]byte, error) {
	s.line, s.item = 0, newItemEnd()
	for {
		n, err := s.length(s.buf[s.at:])
		if err != nil {
			return nil, err
		}
		if n > 0 {
			event, err := s.take(n)
			return event[s.encoding.LengthPrefix():], err
		}
		if err := s.more(); err != nil {
			if err == io.EOF && len(s.buf) > s.at {
				err = fmt.Errorf("stream ended within an event: %w", io.ErrUnexpectedEOF)
			}
			return nil, err
		}
	}
}

// length returns the length of the event that rest begins with, its prefix included; 0 if rest ends
// before the event.
func (s *eventReader) length(rest []byte) (n int, err error) {
	ends, prefix := false, s.encoding.LengthPrefix()
	switch s.encoding {
	case Protobuf:
		if len(rest) >= prefix {
			n = int(min(binary.BigEndian.Uint32(rest), MaxEvent+1)) + prefix
			ends = len(rest) >= n
		}
	case CBOR:
		ends, err = s.item.find(rest)
		n = s.item.at
	default:
		i := bytes.IndexByte(rest[s.line:], '\n')
		if ends = i >= 0; ends {
			n = s.line + i + 1
		} else {
			n = len(rest)
			s.line = n
		}
	}
	switch {
	case err != nil:
		return 0, err
	case n > MaxEvent+prefix:
		return 0, ErrTooLong
	case !ends:
		return 0, nil
	}
	return n, nil
}

// stream is a buffer before a stream. It grows to what is asked for.
type stream struct {
	r     io.Reader
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

// take returns the next n bytes, which are valid until the next call. It returns io.EOF if the
// stream ends before them, and io.ErrUnexpectedEOF if it ends within them.
func (s *stream) take(n int) ([]byte, error) {
	for len(s.buf)-s.at < n {
		if err := s.more(); err != nil {
			if err == io.EOF && len(s.buf) > s.at {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	s.at += n
	s.taken += int64(n)
	return s.buf[s.at-n : s.at], nil
}

// more reads more into the buffer.
func (s *stream) more() error {
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
