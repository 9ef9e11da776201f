package framing_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// unzip reads a gzip stream, which must be exactly one member, with two implementations.
func unzip(t testing.TB, member []byte) []byte {
	t.Helper()
	type reader interface {
		io.Reader
		Multistream(bool)
	}
	read := func(name string, open func(io.Reader) (reader, error)) []byte {
		t.Helper()
		r := bytes.NewReader(member) // an io.ByteReader: the decompressor reads no byte more than it needs
		z, err := open(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		z.Multistream(false)
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatalf("%s: after %d bytes: %v", name, len(plain), err)
		}
		if r.Len() > 0 {
			t.Fatalf("%s: %d bytes behind the member", name, r.Len())
		}
		return plain
	}
	plain := read("compress/gzip", func(r io.Reader) (reader, error) { return stdgzip.NewReader(r) })
	other := read("klauspost", func(r io.Reader) (reader, error) { return gzip.NewReader(r) })
	if !bytes.Equal(plain, other) {
		t.Fatal("two decompressors disagree")
	}
	return plain
}

func deflate(level int, parts ...[]byte) framing.Deflated {
	return framing.Deflate(level, slices.Values(parts))
}

func member(parts ...framing.Deflated) []byte {
	return slices.Concat(framing.GzipMember(parts...)...)
}

func TestGzipMember(t *testing.T) {
	f := func(parts ...string) {
		t.Helper()
		want := strings.Join(parts, "")
		for level := 1; level <= 9; level++ {
			var alternating []framing.Deflated
			var size int
			for i, p := range parts {
				d := framing.Stored([]byte(p))
				if i%2 == level%2 {
					d = deflate(level, []byte(p))
				}
				alternating = append(alternating, d)
				size += d.Len()
			}
			got := member(alternating...)
			if string(unzip(t, got)) != want {
				t.Errorf("level %d: %.60q came back otherwise", level, want)
			}
			if len(got) != 10+size+10 {
				t.Errorf("level %d: %d bytes, want %d and 20", level, len(got), size)
			}
		}
	}
	f()
	f("")
	f("", "", "")
	f("a")
	f(`{"a":1}`, ``, `{"a":1}`)
	long := string(sample(t, 300<<10))
	f("[", long, "]")
	f(long, long) // the second must not refer to the first
	for _, n := range []int{1<<16 - 2, 1<<16 - 1, 1 << 16, 2*(1<<16-1) - 1, 2 * (1<<16 - 1), 2*(1<<16-1) + 1} {
		f(long[:n])
		f("a", long[:n], "b")
	}
}

// The example in the doc comment of Stored.
func TestStored(t *testing.T) {
	want := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + "\x00\x07\x00\xf8\xff" + `{"a":1}` + "\x03\x00"
	p := []byte(`{"a":1}`)
	want += string(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(p))) + "\x07\x00\x00\x00"
	d := framing.Stored(p)
	clear(p)
	if got := string(member(d)); got != want {
		t.Errorf("got %x\nwant %x", got, want)
	}
}

// The length in the trailer is modulo 2^32. The CRC-32 covers everything.
func TestGzipMemberBeyond4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes 4 GiB")
	}
	const n = 4<<30/(16<<20) + 1
	p := make([]byte, 16<<20)
	p[0] = 1
	d := deflate(1, p)
	var crc uint32
	for range n {
		crc = crc32.Update(crc, crc32.IEEETable, p)
	}
	parts := framing.GzipMember(slices.Repeat([]framing.Deflated{d}, n)...)
	trailer := parts[len(parts)-1]
	trailer = trailer[len(trailer)-8:]
	if got := binary.LittleEndian.Uint32(trailer); got != crc {
		t.Errorf("CRC-32 %#x, want %#x", got, crc)
	}
	if got := binary.LittleEndian.Uint32(trailer[4:]); got != 16<<20 {
		t.Errorf("length %d, want %d", got, 16<<20)
	}
}

// A run may be anywhere in several members, whatever the pooled compressors have compressed before it
// and compress at the same time.
func TestDeflatedStandsAnywhere(t *testing.T) {
	random := steady.Rand(t)
	text := sample(t, 100<<10)
	var plain [][]byte
	var runs []framing.Deflated
	for range 20 {
		from := random.IntN(len(text))
		p := text[from : from+random.IntN(len(text)-from)]
		plain = append(plain, p)
		runs = append(runs, deflate(1+random.IntN(9), p[:len(p)/3], nil, p[len(p)/3:]))
	}
	var all sync.WaitGroup
	for i := range 20 {
		own := fmt.Appendf(nil, "%d", i)
		drawn := random.Perm(len(runs))[:1+random.IntN(10)]
		all.Go(func() {
			want, parts := slices.Clone(own), []framing.Deflated{deflate(1, own)}
			for _, i := range drawn {
				want, parts = append(want, plain[i]...), append(parts, runs[i])
			}
			if !bytes.Equal(unzip(t, member(parts...)), want) {
				t.Error("came back otherwise")
			}
		})
	}
	all.Wait()
}

// FuzzGzipMember splits data into runs, compresses each as kinds says, and assembles them again.
func FuzzGzipMember(f *testing.F) {
	f.Add([]byte(`{"items":[{"a":1},{"a":1}]}`), []byte{0, 1, 9}, uint64(1))
	f.Add(sample(f, 2<<10), []byte{1, 0}, uint64(2))
	f.Add([]byte{}, []byte{}, uint64(3))
	f.Fuzz(func(t *testing.T, data, kinds []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var parts []framing.Deflated
		rest := data
		for _, kind := range kinds[:min(len(kinds), 20)] { // a compressor each
			n := random.IntN(len(rest) + 1)
			if level := kind % 10; level == 0 {
				parts = append(parts, framing.Stored(rest[:n]))
			} else {
				parts = append(parts, deflate(int(level), rest[:n/2], rest[n/2:n]))
			}
			rest = rest[n:]
		}
		parts = append(parts, framing.Stored(rest))
		if got := unzip(t, member(parts...)); !bytes.Equal(got, data) {
			t.Fatalf("got %q, want %q", got, data)
		}
	})
}
