package proxy

import (
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/framing"
)

// What is remembered of resources that come and go is bounded.
func TestOffersBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffers(&fakeUpstream{answer: func(identity, string, []byte) (int, string, error) { return 406, "", nil }})
		for i := range 3 * mostOffers {
			o.choose(t.Context(), unknown(i), []clause{{representation: representation{encoding: framing.Protobuf}}})
		}
		if got := len(o.known); got > mostOffers {
			t.Errorf("%d are remembered, want at most %d", got, mostOffers)
		}
	})
}
