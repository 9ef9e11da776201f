package diagnose

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func TestParseKeys(t *testing.T) {
	for read, want := range map[string][]key{
		"":                   nil,
		"jk":                 {keyDown, keyUp},
		"\x1b[A\x1b[B\x1bOA": {keyUp, keyDown, keyUp},
		"\x1b":               {keyBack},
		"s\r\x1b":            {keySort, keyEnter, keyBack},
		"\x1b[15~s":          nil, // F5: the rest of the read is skipped
		"x\x03":              {keyQuit},
		"gG\x1b[H\x1b[4~":    {keyFirst, keyLast, keyFirst, keyLast},
		"ä":                  nil,
	} {
		if got := parseKeys([]byte(read)); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", read, got, want)
		}
	}
}

// Whatever a terminal sends, there are no more keys than bytes.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("j\x1b[A\x1b"))
	f.Fuzz(func(t *testing.T, read []byte) {
		if found := parseKeys(read); len(found) > len(read) {
			t.Errorf("%d keys in %q", len(found), read)
		}
	})
}

// The end of the input ends top.
func TestReadKeys(t *testing.T) {
	keys := make(chan key, 3)
	readKeys(context.Background(), strings.NewReader("js"), keys)
	if got := []key{<-keys, <-keys, <-keys}; !slices.Equal(got, []key{keyDown, keySort, keyQuit}) {
		t.Errorf("got %v", got)
	}
}
