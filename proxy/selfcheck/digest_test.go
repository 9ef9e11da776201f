package selfcheck

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// The digest is the one that the package comment describes. The figures are Python's:
//
//	int.from_bytes(sha256(b"ns/a\0u1\0" + b"101").digest()[:16])
func TestDigest(t *testing.T) {
	h := &hasher{}
	a, b := hash(h, "ns/a", "u1", 101), hash(h, []byte("b"), []byte("u2"), 18446744073709551615)
	for _, c := range []struct{ got, want string }{
		{digest{}.String(), "00000000000000000000000000000000"},
		{a.String(), "ce806ad448c83b0e310c4d32be2191e0"},
		{b.String(), "55e4f7274bef2e25275a52ecb903475e"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	sum := a
	sum.add(b)
	if sum.String() != "246561fb94b769335866a01f7724d93e" || sum.objects != 2 {
		t.Errorf("got %s of %d", sum, sum.objects)
	}
	if x := hash(h, "ns/a", "u11", 1); x == a || x == hash(h, "ns/au11", "", 1) || x == hash(h, "ns/a", "u1", 11) {
		t.Error("the parts of an identity run together")
	}
}

// The order does not matter, and the sum is one of 128 bits.
func TestDigestSum(t *testing.T) {
	rng := steady.Rand(t)
	var all []digest
	for range 1000 {
		all = append(all, digest{rng.Uint64(), rng.Uint64(), 1})
	}
	var there, back digest
	for i := range all {
		there.add(all[i])
		back.add(all[len(all)-1-i])
	}
	if there != back || there.objects != 1000 {
		t.Errorf("got %s and %s", there, back)
	}
	carried := digest{lo: 1<<64 - 1}
	carried.add(digest{lo: 1})
	if carried != (digest{hi: 1}) {
		t.Errorf("got %s", carried)
	}
}
