package proxytest_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

func TestEventReader(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	for name, c := range map[string]struct {
		body     string
		protobuf bool
		then     error // behind the body
		want     []string
		err      error
	}{
		"lines":                   {"{1}\n{2}\n", false, io.EOF, []string{"{1}\n", "{2}\n"}, io.EOF},
		"half a line":             {"{1}\n{2", false, io.EOF, []string{"{1}\n"}, io.ErrUnexpectedEOF},
		"half a line, and broken": {"{1}\n{2", false, errBroken, []string{"{1}\n"}, errBroken},
		"frames":                  {"\x00\x00\x00\x02ab\x00\x00\x00\x01c", true, io.EOF, []string{"ab", "c"}, io.EOF},
		"an empty frame":          {"\x00\x00\x00\x00", true, io.EOF, []string{""}, io.EOF},
		"half a length":           {"\x00\x00", true, io.EOF, nil, io.ErrUnexpectedEOF},
		"half a frame":            {"\x00\x00\x00\x02a", true, io.EOF, nil, io.ErrUnexpectedEOF},
	} {
		body := io.MultiReader(iotest.OneByteReader(strings.NewReader(c.body)), iotest.ErrReader(c.then))
		r := proxytest.NewEventReader(body, c.protobuf)
		var got []string
		event, err := r.Next()
		for ; err == nil; event, err = r.Next() {
			got = append(got, string(event))
		}
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, err, c.want, c.err)
		}
	}
	huge := proxytest.NewEventReader(strings.NewReader("\xff\xff\xff\xff"), true)
	if event, err := huge.Next(); err == nil {
		t.Errorf("an event of 4 GiB: got %q", event)
	}
}
