package auth

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A no that would end open watches is confirmed by a kube-apiserver that is ready.
func TestNoIsConfirmed(t *testing.T) {
	for _, c := range []struct {
		name    string
		ready   int  // status of /readyz; 0 if there is no answer
		again   bool // the second review says yes
		revoked bool
	}{
		{"it is ready", 200, false, true},
		{"it has become ready", 200, true, false},
		{"it is not ready", 500, false, false},
		{"it has gone", 0, false, false},
		{"the proxy may not know", 403, false, true},
		{"nobody may know", 403, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var denies, noes atomic.Int64
				up := &proxytest.FakeUpstream[Identity]{Answer: func(id Identity, path string, _ []byte) (int, string, error) {
					switch {
					case path == "/readyz" && id.Kind != KindOwn:
						return 0, "", fmt.Errorf("asked as %v", id.Kind)
					case path == "/readyz" && c.ready == 0:
						return 0, "", fmt.Errorf("connection refused")
					case path == "/readyz":
						return c.ready, "", nil
					case denies.Load() > 0 && (noes.Add(1) == 1 || !c.again):
						return fakeReviews{"a": "no"}.answer(id, path, nil)
					}
					return fakeReviews{"a": "yes"}.answer(id, path, nil)
				}}
				a := authorizerOf(up)
				go a.Run(t.Context())
				revoked, _ := watches(t, a, "a", "/api/v1/pods?watch=1", 3)
				time.Sleep(recheckInterval / 2)
				denies.Add(1)
				time.Sleep(recheckInterval)
				if noes.Load() == 0 {
					t.Fatal("nobody was asked about")
				}
				if got := revoked() == 3; got != c.revoked {
					t.Errorf("revoked: %t, want %t, after %d reviews", got, c.revoked, noes.Load())
				}
				if c.revoked || c.again {
					return
				}
				time.Sleep(maxGrantAge * recheckInterval)
				if revoked() != 3 {
					t.Errorf("%d of 3 watches have ended though nobody has said yes for long", revoked())
				}
			})
		})
	}
}
