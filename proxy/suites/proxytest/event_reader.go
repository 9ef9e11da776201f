package proxytest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// mostEvent is how many bytes an event in protobuf may have.
const mostEvent = 4 << 20

// EventReader divides the body of a watch into events, and does not decode them.
type EventReader struct {
	in       *bufio.Reader
	protobuf bool
}

// NewEventReader returns a reader of events in protobuf or in JSON.
func NewEventReader(body io.Reader, protobuf bool) *EventReader {
	return &EventReader{bufio.NewReaderSize(body, 16<<10), protobuf}
}

// Next returns the next event: a line of JSON with its end, or the bytes of a metav1.WatchEvent.
// The error is io.EOF if the body ends behind an event.
func (r *EventReader) Next() ([]byte, error) {
	if r.protobuf {
		return r.nextFrame()
	}
	line, err := r.in.ReadBytes('\n')
	switch {
	case err == nil:
		return line, nil
	case len(bytes.TrimSpace(line)) == 0:
		return nil, err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("the stream ended within the event %.100q: %w", line, err)
}

// nextFrame reads a length of four bytes, and as many bytes.
func (r *EventReader) nextFrame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r.in, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > mostEvent {
		return nil, fmt.Errorf("an event has %d bytes, more than %d", n, mostEvent)
	}
	frame := make([]byte, n)
	if got, err := io.ReadFull(r.in, frame); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("the stream ended behind %d of an event's %d bytes: %w", got, n, err)
	}
	return frame, nil
}
