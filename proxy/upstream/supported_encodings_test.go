package upstream

import (
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// The memory of resources that come and go is bounded.
func TestSupportedEncodingsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewSupportedEncodings(&proxytest.FakeUpstream[auth.Identity]{
			Answer: func(auth.Identity, string, []byte) (int, string, error) { return 406, "", nil },
		})
		for i := range 3 * maxSupportedEncodings {
			o.Choose(t.Context(), unknown(i),
				[]request.Clause{{Representation: request.Representation{Encoding: framing.Protobuf}}})
		}
		if got := len(o.known); got > maxSupportedEncodings {
			t.Errorf("%d are remembered, want at most %d", got, maxSupportedEncodings)
		}
	})
}
