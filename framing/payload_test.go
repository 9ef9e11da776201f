package framing_test

import (
	"bytes"
	"io"
	"net/http/httputil"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// payloads returns the payloads of a batch, one for each chunk. It returns false for a batch that
// is not of whole chunks.
func payloads(batch [][]byte) (all [][]byte, ok bool) {
	for len(batch) > 0 {
		first, second, rest, ok := framing.NextPayload(batch)
		if !ok {
			return all, false
		}
		all = append(all, append(append([]byte(nil), first...), second...))
		batch = rest
	}
	return all, true
}

// The payloads of all forms of chunks are their bytes without the chunk framing, in the same
// memory.
func TestNextPayload(t *testing.T) {
	var batch, want [][]byte
	for _, frames := range capturedFrames(t) {
		for _, f := range frames {
			if len(f.Head) > 0 {
				batch = append(batch, f.Head)
			}
			batch, want = append(batch, f.Body), append(want, f.Payload(nil))
		}
	}
	batch = append(batch, []byte(framing.GzipStart), []byte(framing.LastChunk))
	want = append(want, []byte(framing.GzipStart[3:len(framing.GzipStart)-2]), nil)
	got, ok := payloads(batch)
	if !ok || len(got) != len(want) {
		t.Fatalf("got %d payloads, %v, want %d", len(got), ok, len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("payload %d: got %q, want %q", i, got[i], want[i])
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		for rest, ok := batch, true; len(rest) > 0 && ok; {
			_, _, rest, ok = framing.NextPayload(rest)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	chunk := []byte("3\r\nabc\r\n")
	if first, _, _, _ := framing.NextPayload([][]byte{chunk}); &first[0] != &chunk[3] || cap(first) != 3 {
		t.Errorf("got %q with a capacity of %d, in other memory", first, cap(first))
	}
}

// A batch that is not of whole chunks is rejected.
func TestNextPayloadRejects(t *testing.T) {
	for _, batch := range [][]string{
		{}, {""}, {"3"}, {"3\r\n"}, {"\r\nabc\r\n"}, {"3\nabc\r\n"}, {"3\r\nabc"}, {"3\r\nabc\r"}, {"3\r\nabcd\r\n"},
		{"3\r\nab\r\n"}, {"3\r\nabc\r\n3\r\nabc\r\n"}, {"3\r\nabc", "d\r\n"}, {"3\r\na", "b\r\n"}, {"3\r\na", "b", "c\r\n"},
		{"3;x=y\r\nabc\r\n"}, {"ffffffffffffffff\r\nabc\r\n"}, {"12345678\r\n"}, {"-3\r\nabc\r\n"}, {"3\r\nabcde", "\r\n"},
	} {
		slices := make([][]byte, len(batch))
		for i := range batch {
			slices[i] = []byte(batch[i])
		}
		if first, second, _, ok := framing.NextPayload(slices); ok {
			t.Errorf("%q: got %q %q", batch, first, second)
		}
	}
}

// FuzzNextPayload compares the payload of a chunk, cut in two anywhere, with net/http's reading.
func FuzzNextPayload(f *testing.F) {
	f.Add([]byte("3\r\nabc\r\n"), 4)
	f.Add([]byte("a\r\n0123456789\r\n"), 0)
	f.Add([]byte(framing.LastChunk), 2)
	f.Fuzz(func(t *testing.T, chunk []byte, at int) {
		batch := [][]byte{chunk}
		if at > 0 && at < len(chunk) {
			batch = [][]byte{chunk[:at], chunk[at:]}
		}
		got, ok := payloads(batch)
		if !ok || len(batch[0]) == 0 {
			return
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(append(chunk, framing.LastChunk...))))
		if joined := bytes.Join(got, nil); err != nil || !bytes.Equal(joined, want) {
			t.Errorf("got %q, want %q, %v", joined, want, err)
		}
	})
}
