package proxy

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// A body that has been read in part, or by an attempt that still reads, is sent again from its beginning, unless it is long.
func TestRequestBodyAgain(t *testing.T) {
	for _, size := range []int{0, 1, 1000, maxKeptBody, maxKeptBody + 1} {
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
			if before > maxKeptBody {
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

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/", "/api/v1/pods?watch=1", "//x/../y%2Fz?a=%zz&b", "/%zz", "http://host/path?q", "http://host", "*", "host:443", "/a?b?c#d", "/\xff|"} {
		f.Add(seed)
	}
	upstream, err := NewUpstream(&rest.Config{Host: "https://kube.example:6443/base/"})
	if err != nil {
		f.Fatal(err)
	}
	p := &passthrough{upstream: upstream}
	f.Fuzz(func(t *testing.T, target string) {
		if _, _, _, ok := cutTarget([]byte(target)); !ok {
			return
		}
		u := p.target([]byte(target))
		if u.Host != "kube.example:6443" || u.Scheme != "https" {
			t.Fatalf("%q leads to %s", target, u)
		}
		got := u.RequestURI()
		if !strings.HasPrefix(got, "/base/") {
			t.Fatalf("%q leads to %q, outside the base path", target, got)
		}
		if plain(target) && strings.HasPrefix(target, "/") && got != "/base"+target {
			t.Fatalf("%q became %q", target, got)
		}
	})
}

// plain reports whether a target has no bytes that must be escaped in a path.
func plain(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>\\^`{|}", c) >= 0 {
			return false
		}
	}
	return true
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
	if _, err := io.ReadAll(&bodyAttempt{body: b}); !errors.Is(err, errPanicked) {
		t.Errorf("%v, want %v", err, errPanicked)
	}
}

// fasthttp reads a response's body beside others: a panic there fails that response.
func TestPanicInResponseBody(t *testing.T) {
	c, other := net.Pipe()
	t.Cleanup(func() { c.Close(); other.Close() })
	b := &responseBody{ReadCloser: panickingBody{}, conn: c, request: &requestBody{conn: c}, log: slog.New(slog.DiscardHandler)}
	if _, err := b.WriteTo(io.Discard); !errors.Is(err, errPanicked) {
		t.Errorf("WriteTo: %v, want %v", err, errPanicked)
	}
	passthroughInFlight.Add(1) // Close takes it back
	if err := b.Close(); !errors.Is(err, errPanicked) {
		t.Errorf("Close: %v, want %v", err, errPanicked)
	}
}
