package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A lane is in quarantine for the given time. It is known as quarantined until it is filled, or nobody has asked for it for a while.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := &lanes{idle: 5 * time.Minute}
		pods := laneKey{gvr: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		secrets := laneKey{gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
		ls.quarantine(pods, quarantineFor)
		ls.quarantine(secrets, memoryQuarantine)
		want := func(now int, podsIn, secretsIn bool) {
			t.Helper()
			ls.stopIdle()
			if n := ls.quarantinedCount(); n != now || ls.quarantined(pods) != podsIn || ls.quarantined(secrets) != secretsIn {
				t.Errorf("%d are in quarantine, %t, %t; want %d, %t, %t", n, ls.quarantined(pods), ls.quarantined(secrets), now, podsIn, secretsIn)
			}
		}
		want(2, true, true)
		time.Sleep(memoryQuarantine)
		want(1, true, true)
		time.Sleep(ls.idle)
		want(1, true, false)
		time.Sleep(quarantineFor)
		want(0, false, false)
	})
}
