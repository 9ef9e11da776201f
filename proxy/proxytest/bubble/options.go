package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
)

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
