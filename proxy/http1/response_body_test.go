package http1

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/request"
)

// panickingBody panics as soon as anything of it is used.
type panickingBody struct{}

func (panickingBody) Read([]byte) (int, error) { panic("read") }
func (panickingBody) Close() error             { panic("close") }

// fasthttp reads a response's body beside others: a panic there fails that response.
func TestPanicInResponseBody(t *testing.T) {
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	b := &responseBody{ReadCloser: panickingBody{}, conn: c, request: &requestBody{conn: c}, log: slog.New(slog.DiscardHandler)}
	if _, err := b.WriteTo(io.Discard); !errors.Is(err, request.ErrPanicked) {
		t.Errorf("WriteTo: %v, want %v", err, request.ErrPanicked)
	}
	if err := b.Close(); !errors.Is(err, request.ErrPanicked) {
		t.Errorf("Close: %v, want %v", err, request.ErrPanicked)
	}
}
