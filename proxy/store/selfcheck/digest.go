package selfcheck

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// digest is the digest of a set of objects, and their number. The zero value is that of none. It
// does not tell objects that somebody has chosen for their hashes from others.
type digest struct {
	hi, lo  uint64 // the sum of the objects' hashes modulo 2^128
	objects int
}

// add adds the objects of another set.
func (d *digest) add(e digest) {
	var carry uint64
	d.lo, carry = bits.Add64(d.lo, e.lo, 0)
	d.hi, _ = bits.Add64(d.hi, e.hi, carry)
	d.objects += e.objects
}

// String returns the sum in hexadecimal digits.
func (d digest) String() string { return fmt.Sprintf("%016x%016x", d.hi, d.lo) }

// hasher computes the digests of single objects. It reuses its buffer.
type hasher struct{ line []byte }

// hash returns the digest of one object.
func hash[T string | []byte](h *hasher, key, uid T, rv uint64) digest {
	h.line = append(append(h.line[:0], key...), 0)
	h.line = append(append(h.line, uid...), 0)
	h.line = strconv.AppendUint(h.line, rv, 10)
	sum := sha256.Sum256(h.line)
	return digest{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:]), 1}
}
