package framing_test

import (
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
