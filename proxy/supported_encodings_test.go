package proxy

import (
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// What is remembered of resources that come and go is bounded.
func TestSupportedEncodingsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newSupportedEncodings(&proxytest.FakeUpstream[identity]{Answer: func(identity, string, []byte) (int, string, error) { return 406, "", nil }})
		for i := range 3 * maxSupportedEncodings {
			o.choose(t.Context(), unknown(i), []clause{{representation: representation{encoding: framing.Protobuf}}})
		}
		if got := len(o.known); got > maxSupportedEncodings {
			t.Errorf("%d are remembered, want at most %d", got, maxSupportedEncodings)
		}
	})
}
