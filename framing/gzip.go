package framing

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Deflated is a run of bytes, compressed once, that may be placed anywhere in any number of gzip
// members (see [GzipMember]). It is whole DEFLATE blocks (RFC 1951), none of them marked as the
// last. They end at a byte boundary and refer to nothing before themselves.
//
// It is immutable, and its zero value is the empty run.
type Deflated struct {
	blocks []byte
	plain  Checksum
}

// Len is the number of bytes that d takes in a member.
func (d Deflated) Len() int { return len(d.blocks) }

// Deflate compresses the bytes of parts, one after the other, at a level from 1 (fast) to 9
// (small). Deflate keeps none of the parts.
func Deflate(level int, parts iter.Seq[[]byte]) Deflated {
	blocks, plain := appendDeflated(nil, level, nil, parts)
	return Deflated{bytes.Clone(blocks), plain} // it is kept for long, so without spare capacity
}

// appendDeflated appends the blocks of parts to dst. They may refer to dictionary, at most 32 KiB,
// which must then come right before them in the member.
func appendDeflated(dst []byte, level int, dictionary []byte, parts iter.Seq[[]byte]) ([]byte, Checksum) {
	w, ok := deflaters[level].Get().(*flate.Writer)
	if !ok {
		w, _ = flate.NewWriter(nil, level) // an error only for a level that does not exist
	}
	defer deflaters[level].Put(w)
	blocks := bytes.NewBuffer(dst)
	w.ResetDict(blocks, dictionary)
	var plain Checksum
	for p := range parts {
		w.Write(p) // a bytes.Buffer never fails
		plain = plain.update(p)
	}
	if plain.n > 0 {
		w.Flush() // ends the last block with an empty stored block, which is aligned
	}
	w.ResetDict(nil, nil) // the pool must not keep blocks alive
	return blocks.Bytes(), plain
}

// deflaters are compressors by level.
var deflaters [flate.BestCompression + 1]sync.Pool

// Stored returns p uncompressed, for parts that are small and differ in every response. It adds 5
// bytes for each 65,535 begun (RFC 1951, section 3.2.4):
//
//	00  <length>  <length's complement>  <bytes>        {"a":1}  →  00 07 00 f8 ff {"a":1}
//
// The result does not alias p.
func Stored(p []byte) Deflated {
	blocks := make([]byte, 0, len(p)+5)
	for block := range slices.Chunk(p, math.MaxUint16) {
		n := len(block)
		blocks = append(blocks, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		blocks = append(blocks, block...)
	}
	return Deflated{blocks, checksum(p)}
}

// GzipMember returns a gzip stream of exactly one member (RFC 1952) that holds the plain bytes of
// parts, one after the other:
//
//	┌ header ┐┌ blocks of each part ─────────┐┌ empty last block ┐┌ CRC-32 ┐┌ length ┐
//	1f 8b 08 … 00 07 00 f8 ff {"a":1} … … 00 00 ff ff 03 00  xx xx xx xx  07 00 00 00
//
// The stream is the returned slices in order, as a writev takes them. The slice of slices is the
// caller's. The bytes are shared with all other members of the same parts, and read only.
func GzipMember(parts ...Deflated) [][]byte {
	member := append(make([][]byte, 0, len(parts)+2), gzipHeader)
	var whole Checksum
	for _, d := range parts {
		if d.plain.n > 0 {
			member = append(member, d.blocks)
			whole = whole.Followed(d.plain)
		}
	}
	return append(member, whole.appendTrailer(make([]byte, 0, 10)))
}

// gzipOpening has no name, no time, and an unknown operating system.
const gzipOpening = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

var gzipHeader = []byte(gzipOpening)
