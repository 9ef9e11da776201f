package exchange

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Fields are found in any case, in the order in which they were sent.
func TestHeader(t *testing.T) {
	h := Header{{"Via", "a"}, {"X", "b"}, {"via", "c"}, {"VIA", ""}, {"\u212aey", "d"}}
	if got := h.All("Via"); !slices.Equal(got, []string{"a", "c", ""}) {
		t.Errorf("all: %q", got)
	}
	if first, ok := h.First("vIA"); first != "a" || !ok || h.Has("Key") || h.Get("none") != "" || !h.Has("x") {
		t.Errorf("first: %q, %v", first, ok)
	}
	h.Set("via", "e")
	h.Set("Y", "f")
	if want := (Header{{"Via", "e"}, {"X", "b"}, {"\u212aey", "d"}, {"Y", "f"}}); !slices.Equal(h, want) {
		t.Errorf("set: got %q, want %q", h, want)
	}
}

func TestCutTarget(t *testing.T) {
	for target, want := range map[string]Target{
		"/":                    {Path: "/"},
		"/a%2fb?":              {Path: "/a%2fb", Asked: true},
		"/a?b?c=%zz#d":         {Path: "/a", Query: "b?c=%zz#d", Asked: true},
		"http://h:1/a?b":       {Authority: "h:1", Path: "/a", Query: "b", Asked: true},
		"http://u@h/":          {Authority: "u@h", Path: "/"},
		"//localhost://x/a":    {Path: "//localhost://x/a"},
		"/?://localhost/a":     {Path: "/", Query: "://localhost/a", Asked: true},
		"https://[::1]:6443/a": {Authority: "[::1]:6443", Path: "/a"},
	} {
		if got, ok := CutTarget(target); got != want || !ok {
			t.Errorf("%q: got %+v, %v, want %+v", target, got, ok, want)
		}
	}
	for _, target := range []string{"", "*", "h:443", "http://h", "http://h?a", "http://h#/", "/%", "/a%2", "/a%2g", "/%zz?a"} {
		if got, ok := CutTarget(target); ok {
			t.Errorf("%q: got %+v", target, got)
		}
	}
}

// closed notes that it has been closed.
type closed bool

func (*closed) Read([]byte) (int, error) { return 0, nil }

func (c *closed) Close() error {
	*c = true
	return nil
}

// A response that is taken back is closed, and is the last one if it was.
func TestResponseReset(t *testing.T) {
	var reader closed
	r := Response{Status: http.StatusNotFound, Header: Header{{"A", "b"}}, Reader: &reader, Close: true}
	r.Reset()
	if !bool(reader) || r.Reader != nil || r.Code() != http.StatusOK || len(r.Header) != 0 || !r.Close {
		t.Errorf("got %+v, closed %v", r, reader)
	}
	for code, want := range map[int]bool{0: true, 101: false, 200: true, 204: false, 304: false, 404: true} {
		r := Response{Status: code}
		if got := r.HasBody(http.MethodGet); got != want || r.HasBody(http.MethodHead) {
			t.Errorf("%d has a body: %v", code, got)
		}
	}
}

// An ordinary response must have been written when its request is due. One that begins late has a
// moment, and one that passes through a minute from its beginning.
func TestWriteBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		passed := io.NopCloser(http.NoBody)
		for _, test := range []struct{ due, reader, want time.Duration }{
			{20 * time.Second, 0, 20 * time.Second}, {time.Second, 0, leastWrite}, {-time.Hour, 0, leastWrite},
			{20 * time.Second, 1, leastPassed}, {2 * leastPassed, 1, 2 * leastPassed},
		} {
			x := Exchange{Due: now.Add(test.due)}
			if test.reader > 0 {
				x.Response.Reader = passed
			}
			if got := x.WriteBy().Sub(now); got != test.want {
				t.Errorf("due in %s, passed %d: %s, want %s", test.due, test.reader, got, test.want)
			}
		}
		if by := new(Exchange).WriteBy(); !by.IsZero() {
			t.Errorf("a watch is due at %s", by)
		}
	})
}
