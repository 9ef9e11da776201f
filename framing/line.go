package framing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxEvent is the most bytes of one event that an [EventReader] accepts: 16 MiB, the most
// that client-go reads (k8s.io/apimachinery/pkg/runtime/serializer/streaming).
// etcd accepts objects of 1.5 MiB unless told otherwise.
const MaxEvent = 16 << 20

// ErrTooLong is returned for an event of more than MaxEvent bytes.
var ErrTooLong = errors.New("event of more than 16 MiB")

// lineReader cuts a watch stream of JSON into its lines. It implements [EventReader].
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

// newLineReader returns a lineReader of r.
func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// Next returns the next line with its newline, valid until the next call. It
// returns io.EOF at the end of the stream, io.ErrUnexpectedEOF where the stream
// ends within a line, and [ErrTooLong].
func (l *lineReader) Next() ([]byte, error) {
	if cap(l.long) > 1<<20 {
		l.long = nil
	}
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if err == nil && len(l.long) == 0 {
			return part, nil
		}
		if len(l.long)+len(part) > MaxEvent {
			return nil, ErrTooLong
		}
		l.long = append(l.long, part...)
		switch {
		case err == nil:
			return l.long, nil
		case err == io.EOF && len(l.long) > 0:
			return nil, fmt.Errorf("stream ended within an event: %w", io.ErrUnexpectedEOF)
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
