package fairness

import (
	"bytes"
	"slices"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestPieces: Pieces changes no byte.
func TestPieces(t *testing.T) {
	s, rng := New(t.Context(), 2, Purpose{}).of("a"), steady.Rand(t)
	for _, sizes := range [][]int{{}, {0}, {1, 2, 3}, {piece}, {piece + 1, 5}, {3*piece + 7, 0, 1}} {
		var parts [][]byte
		for _, n := range sizes {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(rng.Int())
			}
			parts = append(parts, p)
		}
		got := slices.Collect(s.Pieces(slices.Values(parts)))
		if !bytes.Equal(slices.Concat(got...), slices.Concat(parts...)) {
			t.Errorf("%v: other bytes", sizes)
		}
		for _, p := range got {
			if len(p) > piece {
				t.Errorf("%v: a piece of %d", sizes, len(p))
			}
		}
	}
}
