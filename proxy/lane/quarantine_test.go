package lane

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A lane is in quarantine for the given time. It counts as quarantined until it has been filled, or
// until nobody has asked for it for a while.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := idleLanes(t, &Options{IdleTimeout: 5 * time.Minute})
		pods := Key{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		secrets := Key{GVR: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
		ls.quarantine(pods, quarantineFor)
		ls.quarantine(secrets, memoryQuarantine)
		want := func(now int, podsIn, secretsIn bool) {
			t.Helper()
			ls.stopIdle()
			n := ls.QuarantinedCount()
			if n != now || ls.Quarantined(pods) != podsIn || ls.Quarantined(secrets) != secretsIn {
				t.Errorf("%d are in quarantine, %t, %t; want %d, %t, %t", n, ls.Quarantined(pods),
					ls.Quarantined(secrets), now, podsIn, secretsIn)
			}
		}
		want(2, true, true)
		time.Sleep(memoryQuarantine)
		want(1, true, true)
		time.Sleep(ls.idleTimeout)
		want(1, true, false)
		time.Sleep(quarantineFor)
		want(0, false, false)
	})
}
