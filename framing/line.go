package framing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxEvent is the most bytes of one event that an [EventReader] accepts: 16 MiB, as in client-go
// (k8s.io/apimachinery/pkg/runtime/serializer/streaming). By default etcd accepts objects of up to
// 1.5 MiB.
const MaxEvent = 16 << 20

// ErrTooLong is returned for an event of more than MaxEvent bytes.
var ErrTooLong = errors.New("event of more than 16 MiB")

// lineReader is the [EventReader] of [JSON], which splits a stream into its lines.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

// newLineReader returns a lineReader of r.
func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// Next implements [EventReader]. It returns the line with its newline.
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
