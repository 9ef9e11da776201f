package framing_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

func TestCombineCRC(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 1<<20)
	for i := range p {
		p[i] = byte(random.Uint32())
	}
	f := func(a, b []byte) {
		t.Helper()
		want := crc32.Update(crc32.ChecksumIEEE(a), crc32.IEEETable, b)
		if got := framing.CombineCRC(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), uint64(len(b))); got != want {
			t.Errorf("%d and %d bytes: %#x, want %#x", len(a), len(b), got, want)
		}
	}
	f(nil, nil)
	f(p[:1], nil)
	f(nil, p[:1])
	for n := 1; n <= len(p)/2; n *= 2 {
		f(p[:3], p[3:][:n])
		f(p[:n], p[n:])
		f(p[:n-1], p[n-1:][:n+1])
	}
	for range 100 {
		f(p[:random.IntN(300)], p[random.IntN(len(p)):])
	}
}

// Lengths that no test can hash: the result equals squaring the matrix of one zero bit, for each
// bit of the length.
func TestCombineCRCLong(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	f := func(n uint64) {
		t.Helper()
		a, b := random.Uint32(), random.Uint32()
		if got, want := framing.CombineCRC(a, b, n), combineByMatrix(a, b, n); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	for shift := range 64 {
		f(1 << shift)
		f(1<<shift - 1)
		f(random.Uint64() >> shift)
	}
}

// combineByMatrix is CombineCRC by linear algebra: column i of a matrix is the image of bit i.
func combineByMatrix(a, b uint32, n uint64) uint32 {
	apply := func(m *[32]uint32, v uint32) (sum uint32) {
		for i := range m {
			if v>>i&1 == 1 {
				sum ^= m[i]
			}
		}
		return sum
	}
	var m [32]uint32 // one zero bit
	m[0] = crc32.IEEE
	for i := 1; i < 32; i++ {
		m[i] = 1 << (i - 1)
	}
	square := func() {
		var s [32]uint32
		for i := range m {
			s[i] = apply(&m, m[i])
		}
		m = s
	}
	for range 3 { // one zero byte
		square()
	}
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			a = apply(&m, a)
		}
		square()
	}
	return a ^ b
}

func BenchmarkCombineCRC(b *testing.B) {
	for _, n := range []uint64{3, 3700, 18_612_345, 5_123_456_789} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			crc := uint32(1)
			for b.Loop() {
				crc = framing.CombineCRC(crc, 0x12345678, n)
			}
		})
	}
}
