package diagnose

import (
	"bytes"
	"context"
	"io"
)

// key is a key that top knows.
type key int

const (
	keyQuit key = iota
	keyUp
	keyDown
	keyFirst
	keyLast
	keyEnter
	keyBack
	keySort
)

// keyBytes are the bytes that a terminal sends for each key.
var keyBytes = []struct {
	bytes string
	key   key
}{
	{"\x1b[A", keyUp}, {"\x1bOA", keyUp}, {"k", keyUp},
	{"\x1b[B", keyDown}, {"\x1bOB", keyDown}, {"j", keyDown},
	{"\x1b[H", keyFirst}, {"\x1bOH", keyFirst}, {"\x1b[1~", keyFirst}, {"g", keyFirst},
	{"\x1b[F", keyLast}, {"\x1bOF", keyLast}, {"\x1b[4~", keyLast}, {"G", keyLast},
	{"\r", keyEnter}, {"\n", keyEnter},
	{"s", keySort},
	{"q", keyQuit}, {"Q", keyQuit}, {"\x03", keyQuit}, {"\x04", keyQuit},
}

// parseKeys returns the keys in what one read of a terminal has brought. Escape is the only byte of
// its read, or the last; another sequence that begins with it is skipped.
func parseKeys(read []byte) (found []key) {
next:
	for len(read) > 0 {
		for _, k := range keyBytes {
			if rest, ok := bytes.CutPrefix(read, []byte(k.bytes)); ok {
				found, read = append(found, k.key), rest
				continue next
			}
		}
		if read[0] == '\x1b' && len(read) > 1 {
			return found
		}
		if read[0] == '\x1b' {
			found = append(found, keyBack)
		}
		read = read[1:]
	}
	return found
}

// readKeys sends the keys that are pressed until ctx ends. At the end of the input it sends keyQuit.
func readKeys(ctx context.Context, stdin io.Reader, to chan<- key) {
	buf := make([]byte, 64)
	for {
		n, err := stdin.Read(buf)
		pressed := parseKeys(buf[:n])
		if err != nil {
			pressed = append(pressed, keyQuit)
		}
		for _, k := range pressed {
			select {
			case to <- k:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
