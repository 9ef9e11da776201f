package websocket

import (
	"errors"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Batch is a batch of events as messages. It can be used again; one goroutine uses it at a time. The
// zero value is empty.
type Batch struct {
	// Slices are the frames: for each a header, and the slices of its payload.
	Slices  [][]byte
	headers []byte // memory of the headers in Slices
}

var errNoChunks = errors.New("a batch of a watch does not consist of whole chunks")

// Frame makes b the messages of chunks, which are the shared slices of whole HTTP/1.1 chunks. b
// shares their memory.
func (b *Batch) Frame(form exchange.Messages, chunks [][]byte) error {
	op := opcodeOf(form)
	for len(chunks) > 0 {
		first, second, rest, ok := framing.NextPayload(chunks)
		if !ok || len(first) < form.Prefix {
			return errNoChunks
		}
		first = first[form.Prefix:]
		b.add(op, len(first)+len(second))
		b.Slices = append(b.Slices, first)
		if len(second) > 0 {
			b.Slices = append(b.Slices, second)
		}
		chunks = rest
	}
	return nil
}

func (b *Batch) add(op opcode, n int) {
	if cap(b.headers)-len(b.headers) < maxServerHeader {
		b.headers = make([]byte, 0, 64*maxServerHeader) // Slices keep the memory that is full
	}
	start := len(b.headers)
	b.headers = appendHeader(b.headers, op, n)
	b.Slices = append(b.Slices, b.headers[start:len(b.headers):len(b.headers)])
}

// Reset empties b. kept says that slices of b are still in use: b then leaves them their memory.
func (b *Batch) Reset(kept bool) {
	clear(b.Slices)
	b.Slices, b.headers = b.Slices[:0], b.headers[:0]
	if kept {
		b.headers = nil
	}
}

// Message returns one event, without chunk framing, as a message. It copies the event.
func Message(form exchange.Messages, event []byte) []byte {
	event = event[form.Prefix:]
	return append(appendHeader(make([]byte, 0, maxServerHeader+len(event)), opcodeOf(form), len(event)), event...)
}

func opcodeOf(form exchange.Messages) opcode {
	if form.Binary {
		return opBinary
	}
	return opText
}
