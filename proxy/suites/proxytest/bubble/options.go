package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// Test runs f in a bubble, with a proxy in front of a scripted kube-apiserver.
func Test(t *testing.T, f func(*testing.T, *Proxy), change ...func(*proxy.Options)) {
	synctest.Test(t, func(t *testing.T) { f(t, Start(t, proxytest.NewBubbleServer(t), change...)) })
}

// Row is Test for a subtest.
func Row(t *testing.T, name string, f func(*testing.T, *Proxy), change ...func(*proxy.Options)) {
	t.Run(name, func(t *testing.T) { Test(t, f, change...) })
}

// Run runs f as a subtest in a bubble.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// NoneAlone lets no consistent read pass through because it is cheap: each is answered from a cache
// that is proved to be new enough.
func NoneAlone(o *proxy.Options) { o.Cached.Tuning.MostAlone = 0 }

// Impatient makes reads wait for a proof, or for history, for a second and a half only.
func Impatient(o *proxy.Options) { o.Lane.FreshnessTimeout = 1500 * time.Millisecond }

// SpareLists makes the proxy list no large collection to prove freshness.
func SpareLists(o *proxy.Options) { o.Lane.Tuning.SpareLists = true }

// Fallback makes the proxy a fall-back.
func Fallback(o *proxy.Options) {
	o.InsecurePort, o.SecurePort = 0, 8443
	o.Fallback.FallbackFor = "http://127.0.0.1:8002/readyz"
}
