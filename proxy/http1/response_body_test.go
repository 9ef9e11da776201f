package http1

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// panickingBody panics as soon as anything of it is used.
type panickingBody struct{}

func (panickingBody) Read([]byte) (int, error) { panic("read") }
func (panickingBody) Close() error             { panic("close") }

// fasthttp reads a response's body beside others: a panic there fails that response.
func TestPanicInResponseBody(t *testing.T) {
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	b := &responseBody{ReadCloser: panickingBody{}, conn: c, request: &requestBody{conn: c}, guard: proxytest.Guard()}
	if _, err := b.WriteTo(io.Discard); !errors.Is(err, exchange.ErrPanicked) {
		t.Errorf("WriteTo: %v, want %v", err, exchange.ErrPanicked)
	}
	if err := b.Close(); !errors.Is(err, exchange.ErrPanicked) {
		t.Errorf("Close: %v, want %v", err, exchange.ErrPanicked)
	}
}
