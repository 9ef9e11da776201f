package passthrough

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A body that has been read in part, or by an attempt that still reads, is sent again from its
// beginning, unless it is long.
func TestRequestBodyAgain(t *testing.T) {
	for _, size := range []int{0, 1, 1000, upstream.MaxKeptBody, upstream.MaxKeptBody + 1} {
		sent := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		for _, before := range []int{0, 1, size / 2, size} {
			b := &requestBody{keep: upstream.MaxKeptBody, Body: &scriptedBody{Reader: bytes.NewReader(sent)}}
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
			if st := b.failure(); st != nil {
				t.Errorf("%d bytes, %d of them read before: %+v", size, before, st)
			}
		}
	}
}

// scriptedBody is a client's body.
type scriptedBody struct {
	io.Reader
	released bool
}

func (b *scriptedBody) Hold() bool    { return true }
func (b *scriptedBody) Own()          {}
func (b *scriptedBody) Due(time.Time) {}

func (b *scriptedBody) Release() (whole bool) {
	b.released = true
	n, err := b.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

// panickingBody panics as soon as it is read.
type panickingBody struct{}

func (panickingBody) Read([]byte) (int, error) { panic("read") }

// A client is told what was wrong with its body, and nothing if it was our doing.
func TestRequestBodyFailure(t *testing.T) {
	for want, err := range map[int32]error{
		0:   exchange.ErrBodyReleased,
		400: io.ErrUnexpectedEOF,
		408: fmt.Errorf("read: %w", os.ErrDeadlineExceeded),
	} {
		body := &scriptedBody{Reader: io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(err))}
		b := &requestBody{keep: upstream.MaxKeptBody, Body: body}
		if got, readErr := io.ReadAll(&bodyAttempt{body: b}); !errors.Is(readErr, err) {
			t.Errorf("read %q, %v; want %v", got, readErr, err)
		}
		if st := b.failure(); (st == nil) != (want == 0) || st != nil && st.Code != want || !body.released {
			t.Errorf("%v: the client is told %+v, want %d", err, st, want)
		}
	}
}

// net/http reads a request's body on its own goroutines: a panic there fails that request.
func TestPanicInRequestBody(t *testing.T) {
	b := &requestBody{keep: upstream.MaxKeptBody, Body: &scriptedBody{Reader: panickingBody{}}, guard: proxytest.Guard()}
	if _, err := io.ReadAll(&bodyAttempt{body: b}); !errors.Is(err, exchange.ErrPanicked) {
		t.Errorf("%v, want %v", err, exchange.ErrPanicked)
	}
}
