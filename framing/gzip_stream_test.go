package framing_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// gzipStream is a watch's body as it is assembled for one client.
type gzipStream struct {
	wire  []byte
	plain []byte
	sum   framing.Checksum
}

func newGzipStream() *gzipStream { return &gzipStream{wire: []byte(framing.GzipStart)} }

func (s *gzipStream) add(c framing.GzipChunk, frames ...framing.Frame) {
	s.wire = append(s.wire, c.Bytes()...)
	s.sum = s.sum.Followed(c.Plain)
	for _, f := range frames {
		s.plain = f.Payload(s.plain)
	}
}

// whole returns the body with its end.
func (s *gzipStream) whole() []byte {
	return slices.Concat(s.wire, s.sum.GzipEnd(), []byte(framing.LastChunk))
}

func unchunk(t testing.TB, wire []byte) []byte {
	t.Helper()
	body, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(wire)))
	if err != nil {
		t.Fatalf("not whole chunks: %v", err)
	}
	return body
}

// check reads the complete stream, and the part of it that is there now.
func (s *gzipStream) check(t testing.TB) {
	t.Helper()
	if got := unzip(t, unchunk(t, s.whole())); !bytes.Equal(got, s.plain) {
		t.Fatalf("got %d bytes, want %d, or others", len(got), len(s.plain))
	}
	if s.sum.Len() != uint64(len(s.plain)) {
		t.Fatalf("counted %d bytes of %d", s.sum.Len(), len(s.plain))
	}
	in := &dryReader{ByteScanner: bytes.NewReader(unchunk(t, append(slices.Clip(s.wire), framing.LastChunk...))), at: -1}
	z, err := stdgzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for err == nil {
		var n int
		p := make([]byte, 4096)
		n, err = z.Read(p)
		in.given, got = in.given+n, append(got, p[:n]...)
	}
	if in.at != len(s.plain) || !bytes.Equal(got, s.plain) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("of %d bytes so far, %d can be read before more must come, and %d in all, then %v", len(s.plain), in.at, len(got), err)
	}
}

// dryReader notes how much was returned when its input runs out.
type dryReader struct {
	io.ByteScanner
	given, at int
}

func (r *dryReader) ReadByte() (byte, error) {
	b, err := r.ByteScanner.ReadByte()
	if err != nil && r.at < 0 {
		r.at = r.given
	}
	return b, err
}

func (r *dryReader) Read(p []byte) (int, error) {
	n, err := r.ByteScanner.(io.Reader).Read(p)
	if err != nil && r.at < 0 {
		r.at = r.given
	}
	return n, err
}

// capturedFrames returns the frames of everything that kube-apiserver has sent, by file.
func capturedFrames(t testing.TB) map[string][]framing.Frame {
	t.Helper()
	files := make(map[string][]framing.Frame)
	for _, c := range readEverything(t) {
		scanner := framing.NewScanner(c.encoding, nil)
		for _, section := range []string{"all", "initial"} {
			for _, event := range c.events(section) {
				ev, err := scanner.Event(event)
				if err == nil && ev.Object != nil {
					files[c.String()] = append(files[c.String()], ev.Object.Frame(ev.Type),
						ev.Object.Frame(framing.Added), ev.Object.Frame(framing.Deleted))
				}
			}
		}
	}
	return files
}

// Everything that kube-apiserver has sent comes back, in each encoding: each event alone, after the
// previous one, in runs, and stored.
func TestGzipStream(t *testing.T) {
	files := 0
	for _, frames := range capturedFrames(t) {
		files++
		s := newGzipStream()
		for i, f := range frames {
			next := frames[(i+1)%len(frames)]
			s.add(framing.GzipFrames(framing.Frame{}, f), f)
			s.add(framing.GzipFrames(f, next), next)
			s.add(framing.GzipStored(f), f)
			if i%8 == 0 {
				s.add(framing.GzipFrames(f, frames[i:]...), frames[i:]...)
				s.check(t)
			}
		}
		s.check(t)
	}
	if files < 19 {
		t.Errorf("%d files", files)
	}
}

// A stream without events is a member of no bytes.
func TestGzipStreamEmpty(t *testing.T) {
	newGzipStream().check(t)
	want := framing.GzipStart + "a\r\n\x03\x00" + strings.Repeat("\x00", 8) + "\r\n0\r\n\r\n"
	if got := string(newGzipStream().whole()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The bytes that an update has in common with the previous event are hardly sent again, whatever
// the object's size.
func TestGzipFramesDictionary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 120<<10)
	for i := range noise {
		noise[i] = "0123456789abcdef"[random.IntN(16)]
	}
	for _, size := range []int{1, 10, 300, 4000, 31 << 10, 33 << 10, 120 << 10} {
		f := framing.ErrorFrame(framing.JSON, noise[:size])
		s := newGzipStream()
		alone, again := framing.GzipFrames(framing.Frame{}, f), framing.GzipFrames(f, f)
		s.add(alone, f)
		s.add(again, f)
		s.add(again, f)
		s.check(t)
		if size >= 300 && size < 32<<10 && len(again.Bytes())*5 > len(alone.Bytes()) {
			t.Errorf("%d bytes take %d alone and %d when repeated", size, len(alone.Bytes()), len(again.Bytes()))
		}
	}
}

// Checksums are computed from each other without the bytes.
func TestChecksum(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	text := sample(t, 100<<10)
	of := func(p []byte) framing.Checksum {
		return framing.GzipStored(framing.ErrorFrame(framing.JSON, p)).Plain
	}
	for range 100 {
		a, b := text[:random.IntN(len(text))], text[:random.IntN(len(text))]
		f := framing.ErrorFrame(framing.JSON, b)
		if f.Checksum() != of(b) {
			t.Fatal("a frame's is another than its chunk's")
		}
		both := framing.GzipFrames(framing.Frame{}, framing.ErrorFrame(framing.JSON, a), f).Plain
		if of(a).Followed(of(b)) != both || both.After(of(a)) != of(b) || both.After(framing.Checksum{}) != both ||
			both.After(both) != (framing.Checksum{}) {
			t.Fatalf("of %d and %d bytes", len(a), len(b))
		}
	}
}

// Lengths that no test can hash: appending two parts one after the other equals appending both at once.
func TestCombineCRCLong(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	f := func(n, m uint64) {
		t.Helper()
		a, b, c := random.Uint32(), random.Uint32(), random.Uint32()
		got := framing.CombineCRC(framing.CombineCRC(a, b, n), c, m)
		if want := framing.CombineCRC(a, framing.CombineCRC(b, c, m), n+m); got != want {
			t.Errorf("%d and %d bytes: %#x, want %#x", n, m, got, want)
		}
	}
	for shift := range 63 {
		f(1<<shift, 1<<shift)
		f(1<<shift, 1)
		f(random.Uint64()>>(shift+1), random.Uint64()>>(shift+1))
	}
}

// FuzzGzipStream splits data into events and sends a client these in the forms that kinds gives.
func FuzzGzipStream(f *testing.F) {
	f.Add([]byte(`{"items":[{"a":1},{"a":1}]}`), []byte{0, 1, 2, 3, 1}, uint64(1))
	f.Add(sample(f, 70<<10), []byte{0, 1, 1, 3, 1, 2, 1}, uint64(2))
	f.Add([]byte{}, []byte{0, 1, 1}, uint64(3))
	f.Fuzz(func(t *testing.T, data, kinds []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		next := func() framing.Frame {
			from := random.IntN(len(data) + 1)
			return framing.ErrorFrame(framing.Encoding(random.IntN(3)), data[from:from+random.IntN(len(data)-from+1)])
		}
		s := newGzipStream()
		var before framing.Frame
		for _, kind := range kinds[:min(len(kinds), 20)] {
			run := []framing.Frame{next()}
			switch kind % 4 {
			case 0:
				s.add(framing.GzipFrames(framing.Frame{}, run...), run...)
			case 1:
				s.add(framing.GzipFrames(before, run...), run...)
			case 2:
				s.add(framing.GzipStored(run[0]), run...)
			case 3:
				run = append(run, next(), next())
				s.add(framing.GzipFrames(before, run...), run...)
			}
			before = run[len(run)-1]
		}
		s.check(t)
	})
}
