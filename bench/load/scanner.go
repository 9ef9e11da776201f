package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A scanner finds the watch events in the body of an HTTP/1.1 response. The body comes in pieces
// that may be cut anywhere:
//
//	7a3 CRLF  {"type":"MODIFIED","object":{…}} LF  CRLF  7a3 CRLF …
//	chunk     └──────────── one event ──────────┘
//
// A chunk may hold a part of an event or several events. An event that is whole in one read is not
// copied. The zero value is ready for the first byte after the response's head.
type scanner struct {
	state scanState
	left  int    // in inSize, the size so far; in inData, bytes of data to come
	held  []byte // the begin of an event without its end

	inflate *inflater // for a body with Content-Encoding: gzip; nil otherwise
}

type scanState uint8

const (
	inSize scanState = iota // the hexadecimal digits of a chunk's size
	inExt                   // chunk extension and the CR LF after the size
	inData                  // left bytes of data
	inTail                  // the CR LF after the data
)

const (
	maxChunk = 1 << 30
	maxEvent = 64 << 20
)

// errEnded reports the last chunk of a watch. The stream is well formed, but a watcher of this
// program expects no end.
var errEnded = errors.New("the server ended the stream")

// feed takes the next bytes of the response body and calls event with each whole event, without its
// line feed. The slice is valid during the call only. After an error the scanner cannot be used.
func (s *scanner) feed(p []byte, event func(line []byte) error) error {
	for len(p) > 0 {
		switch s.state {
		case inSize:
			if c := p[0]; c == '\r' || c == ';' || c == ' ' {
				s.state = inExt
				continue
			}
			digit, err := strconv.ParseUint(string(p[:1]), 16, 8)
			if err != nil {
				return fmt.Errorf("byte %q in a chunk's size", p[0])
			}
			if s.left = s.left<<4 | int(digit); s.left > maxChunk {
				return errors.New("chunk of more than 1 GiB")
			}
			p = p[1:]
		case inExt:
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				return nil
			}
			if p = p[i+1:]; s.left == 0 {
				return errEnded
			}
			s.state = inData
		case inData:
			n := min(s.left, len(p))
			if err := s.data(p[:n], event); err != nil {
				return err
			}
			p = p[n:]
			if s.left -= n; s.left == 0 {
				s.state = inTail
			}
		case inTail:
			switch p[0] {
			case '\r':
			case '\n':
				s.state = inSize
			default:
				return fmt.Errorf("byte %q after a chunk", p[0])
			}
			p = p[1:]
		}
	}
	return nil
}

func (s *scanner) data(p []byte, event func([]byte) error) (err error) {
	if s.inflate != nil {
		if p, err = s.inflate.feed(p); err != nil {
			return err
		}
	}
	return s.lines(p, event)
}

func (s *scanner) lines(p []byte, event func([]byte) error) error {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			if len(s.held)+len(p) > maxEvent {
				return errors.New("event of more than 64 MiB")
			}
			s.held = append(s.held, p...)
			return nil
		}
		line := p[:i]
		if len(s.held) > 0 {
			line = append(s.held, line...)
			s.held = nil // there are thousands of streams, and most are rarely cut inside an event
		}
		if err := event(line); err != nil {
			return err
		}
		p = p[i+1:]
	}
	return nil
}

// seqAnnotation is the annotation with the number of a write, and seqMark is its begin in an event.
// The mark occurs once: the list of managed fields has "f:bench-seq", and a JSON string has its
// quotes escaped.
const (
	seqAnnotation = "bench-seq"
	SeqMark       = `"` + seqAnnotation + `":"`
)

// seqOf returns the number of an event's write. ok is false for a bookmark, which has none. Nothing is
// created or deleted during a watch: ADDED and DELETED are as wrong as ERROR.
func seqOf(line []byte) (seq uint64, ok bool, err error) {
	switch {
	case bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)):
		return 0, false, nil
	case !bytes.HasPrefix(line, []byte(`{"type":"MODIFIED"`)):
		return 0, false, fmt.Errorf("unexpected event: %.300q", line)
	}
	_, number, _ := bytes.Cut(line, []byte(SeqMark))
	digits, _, whole := bytes.Cut(number, []byte{'"'})
	if seq, err = strconv.ParseUint(string(digits), 10, 64); err != nil || !whole {
		return 0, false, fmt.Errorf("event without a number: %.80q", line)
	}
	return seq, true, nil
}
