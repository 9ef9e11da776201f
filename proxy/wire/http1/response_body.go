package http1

import (
	"io"
	"net"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const copyBufferSize = 32 << 10

// responseBody is a response's Reader while fasthttp sends it to the client.
type responseBody struct {
	io.ReadCloser
	length  int64 // -1 if not known
	conn    net.Conn
	request *requestBody  // nil for none; it may be read while the response is being sent
	slot    exchange.Slot // released by Close; nil for none
	guard   *exchange.Guard
}

// SupportsBodyWriteTo makes fasthttp use WriteTo.
func (*responseBody) SupportsBodyWriteTo() bool { return true }

// WriteTo sends each read on at once, with a deadline for each write. fasthttp's own loop does this
// only for bodies of unknown length.
func (b *responseBody) WriteTo(w io.Writer) (n int64, err error) {
	defer b.guard.Caught("response body", func() { err = exchange.ErrPanicked }) // fasthttp closes the connection
	taken := exchange.TakeCopyBuffer(b.length)
	defer exchange.GiveCopyBuffer(taken)
	buf := *taken
	flusher, _ := w.(interface{ Flush() error })
	for {
		read, readErr := b.Read(buf)
		if read > 0 {
			_ = b.conn.SetWriteDeadline(time.Now().Add(downstream.StallTimeout))
			written, err := w.Write(buf[:read])
			n += int64(written)
			if err == nil && flusher != nil {
				err = flusher.Flush()
			}
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// Close ends the response, and releases the request's body and slot.
func (b *responseBody) Close() (err error) {
	defer b.guard.Caught("response body", func() { err = exchange.ErrPanicked })
	err = b.ReadCloser.Close()
	if b.request != nil {
		b.request.Release()
	}
	if b.slot != nil {
		b.slot.Release()
	}
	return err
}
