package framing

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"math"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Deflated is a run of bytes compressed once, to stand anywhere in any number
// of gzip members (see [GzipMember]). It is whole DEFLATE blocks (RFC 1951),
// none of them marked as the last, which end at a byte boundary and refer to
// nothing before themselves.
//
// A Deflated is immutable and may be shared by any number of goroutines. Its
// zero value is the empty run.
type Deflated struct {
	blocks []byte
	crc    uint32 // CRC-32 of the plain bytes
	plain  uint64 // their number
}

// Len is the number of bytes that d takes in a member.
func (d Deflated) Len() int { return len(d.blocks) }

// PlainLen is the number of bytes that d stands for.
func (d Deflated) PlainLen() uint64 { return d.plain }

// Deflate compresses the bytes of parts, one after the other, at a level from 1
// (fast) to 9 (small); any other is a programming error and panics. It keeps
// none of the parts.
func Deflate(level int, parts iter.Seq[[]byte]) Deflated {
	w := deflaters[level].Get().(*flate.Writer)
	defer deflaters[level].Put(w)
	var d Deflated
	var blocks bytes.Buffer
	w.Reset(&blocks)
	for p := range parts {
		w.Write(p) // a bytes.Buffer takes everything
		d.crc = crc32.Update(d.crc, crc32.IEEETable, p)
		d.plain += uint64(len(p))
	}
	w.Flush()    // ends the last block, with an empty stored one that is aligned
	w.Reset(nil) // so that the pool does not hold blocks
	if d.plain > 0 {
		d.blocks = bytes.Clone(blocks.Bytes()) // it is kept for long: without the room to grow
	}
	return d
}

// deflaters are compressors by level.
var deflaters [flate.BestCompression + 1]sync.Pool

func init() {
	for level := flate.BestSpeed; level <= flate.BestCompression; level++ {
		deflaters[level].New = func() any {
			w, err := flate.NewWriter(nil, level)
			if err != nil {
				panic("deflate: " + err.Error()) // only for a level that does not exist
			}
			return w
		}
	}
}

// Stored returns p uncompressed, which suits what is small and differs in every
// response. It adds 5 bytes for each 65,535 begun (RFC 1951, section 3.2.4):
//
//	00  <length>  <length's complement>  <bytes>        {"a":1}  →  00 07 00 f8 ff {"a":1}
//
// The result does not alias p.
func Stored(p []byte) Deflated {
	const most = math.MaxUint16 // bytes of one block
	d := Deflated{crc: crc32.ChecksumIEEE(p), plain: uint64(len(p))}
	d.blocks = make([]byte, 0, len(p)+(len(p)+most-1)/most*5)
	for len(p) > 0 {
		n := min(len(p), most)
		d.blocks = append(d.blocks, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		d.blocks = append(d.blocks, p[:n]...)
		p = p[n:]
	}
	return d
}

// GzipMember returns a gzip stream of exactly one member (RFC 1952) that holds
// the plain bytes of parts, one after the other:
//
//	┌ header ┐┌ blocks of each part ─────────┐┌ empty last block ┐┌ CRC-32 ┐┌ length ┐
//	1f 8b 08 … 00 07 00 f8 ff {"a":1} … … 00 00 ff ff 03 00  xx xx xx xx  07 00 00 00
//
// The stream is the returned slices in order, as a writev takes them. The slice
// of slices is the caller's; the bytes are shared with every other member of
// the same parts, and read only.
func GzipMember(parts ...Deflated) [][]byte {
	member := append(make([][]byte, 0, len(parts)+2), gzipHeader)
	var whole Deflated
	for _, d := range parts {
		if d.plain == 0 {
			continue
		}
		member = append(member, d.blocks)
		whole.crc = combineCRC(whole.crc, d.crc, d.plain)
		whole.plain += d.plain
	}
	trailer := append(make([]byte, 0, 10), 0x03, 0x00) // last block, fixed codes: end of block
	trailer = binary.LittleEndian.AppendUint32(trailer, whole.crc)
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(whole.plain)) // modulo 2^32, as RFC 1952 has it
	return append(member, trailer)
}

// gzipHeader has no name, no time, and an unknown operating system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}
