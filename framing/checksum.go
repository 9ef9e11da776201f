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

// trailerLen is the number of bytes that appendTrailer appends.
const trailerLen = 10

// appendTrailer appends the end of a member of c's bytes: an empty last block, the CRC-32, and the
// length modulo 2^32.
func (c Checksum) appendTrailer(dst []byte) []byte {
	dst = append(dst, 0x03, 0x00) // fixed codes: end of block
	dst = binary.LittleEndian.AppendUint32(dst, c.crc)
	return binary.LittleEndian.AppendUint32(dst, uint32(c.n))
}
