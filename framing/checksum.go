package framing

import (
	"encoding/binary"
	"hash/crc32"
)

// Checksum is what the trailer of a gzip member says of the bytes before it: their CRC-32 and their
// number. The zero value is the checksum of no bytes. Checksums can be compared, and computed from
// each other without the bytes.
type Checksum struct {
	crc uint32
	n   uint64
}

// checksum returns the Checksum of p.
func checksum(p []byte) Checksum { return Checksum{}.update(p) }

// update returns the Checksum of c's bytes followed by p.
func (c Checksum) update(p []byte) Checksum {
	return Checksum{crc32.Update(c.crc, crc32.IEEETable, p), c.n + uint64(len(p))}
}

// Len is the number of bytes.
func (c Checksum) Len() uint64 { return c.n }

// Followed returns the Checksum of c's bytes followed by d's.
func (c Checksum) Followed(d Checksum) Checksum {
	return Checksum{combineCRC(c.crc, d.crc, d.n), c.n + d.n}
}

// After returns the Checksum of those of c's bytes that come after begin's, if c's bytes begin with
// begin's: the d for which begin.Followed(d) is c.
func (c Checksum) After(begin Checksum) Checksum {
	n := c.n - begin.n
	return Checksum{combineCRC(begin.crc, c.crc, n), n} // addition is its own inverse
}

// appendTrailer appends the end of a member of c's bytes: an empty last block, the CRC-32, and the
// length modulo 2^32.
func (c Checksum) appendTrailer(dst []byte) []byte {
	dst = append(dst, 0x03, 0x00) // fixed codes: end of block
	dst = binary.LittleEndian.AppendUint32(dst, c.crc)
	return binary.LittleEndian.AppendUint32(dst, uint32(c.n))
}

// combineCRC returns the CRC-32 of a followed by b, given the CRC-32 of each and the number of
// bytes of b. It uses the idea of zlib's crc32_combine.
//
// A CRC is the remainder of a polynomial over GF(2) modulo P, the polynomial that RFC 1952 names in
// section 8. Appending n bytes to a multiplies it by x^8n. Then b is added. The inversions that a
// CRC makes before and after cancel out.
func combineCRC(a, b uint32, n uint64) uint32 {
	for i := 0; n > 0; i, n = i+1, n>>8 {
		if digit := byte(n); digit > 0 {
			a = multiply(a, shift[i][digit])
		}
	}
	return a ^ b
}

// shift[i][d] is x to the power of 8·d·256^i modulo P. Multiplying a CRC by it appends d·256^i
// bytes. With one table for each byte of a length, combining 18 MB takes three multiplications.
var shift = func() (t [8][256]uint32) {
	const one, x8 = 1 << 31, 1 << 23 // coefficients are reflected: the highest bit is that of x^0
	step := uint32(x8)
	for i := range t {
		t[i][0] = one
		for d := 1; d < 256; d++ {
			t[i][d] = multiply(t[i][d-1], step)
		}
		step = multiply(t[i][255], step)
	}
	return t
}()

// multiply returns a·b modulo P. It adds b·x^i for each x^i in a, without a branch.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}
