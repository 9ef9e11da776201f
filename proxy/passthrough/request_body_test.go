package passthrough

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// A body that has been read in part, or by an attempt that still reads, is sent again from its
// beginning, unless it is long.
func TestRequestBodyAgain(t *testing.T) {
	for _, size := range []int{0, 1, 1000, upstream.MaxKeptBody, upstream.MaxKeptBody + 1} {
		sent := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		for _, before := range []int{0, 1, size / 2, size} {
			c, other := net.Pipe()
			t.Cleanup(func() { c.Close(); other.Close() })
			b := &requestBody{conn: c, length: size, stream: bytes.NewReader(sent)}
			first := &bodyAttempt{body: b}
			if _, err := io.ReadFull(first, make([]byte, min(before, size))); err != nil {
				t.Fatal(err)
			}
			second, err := b.again()
			if before > upstream.MaxKeptBody {
				if !errors.Is(err, errBodyNotKept) {
					t.Errorf("%d of %d bytes: %v, want %v", before, size, err, errBodyNotKept)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = first.Read(make([]byte, 10)) // which has not heard yet
			got, err := io.ReadAll(second)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes, %d of them read before: got %d, %v", size, before, len(got), err)
			}
			if !b.release() {
				t.Errorf("%d bytes, %d of them read before: not whole", size, before)
			}
		}
	}
}

// panickingBody panics as soon as anything of it is used.
type panickingBody struct{}

func (panickingBody) Read([]byte) (int, error) { panic("read") }
func (panickingBody) Close() error             { panic("close") }

// net/http reads a request's body on its own goroutines: a panic there fails that request.
func TestPanicInRequestBody(t *testing.T) {
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	b := &requestBody{conn: c, length: 4, stream: panickingBody{}, log: slog.New(slog.DiscardHandler)}
	if _, err := io.ReadAll(&bodyAttempt{body: b}); !errors.Is(err, request.ErrPanicked) {
		t.Errorf("%v, want %v", err, request.ErrPanicked)
	}
}
