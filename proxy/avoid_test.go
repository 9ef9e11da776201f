package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A lane is avoided for as long as was said, and known to have been until it is there again, or nobody has asked for it for a while.
func TestAvoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := &lanes{idle: 5 * time.Minute}
		pods := laneKey{gvr: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		secrets := laneKey{gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
		ls.avoid(pods, avoidFor)
		ls.avoid(secrets, roomIn)
		want := func(now int, podsAvoided, secretsAvoided bool) {
			t.Helper()
			ls.stopIdle()
			if n := ls.avoiding(); n != now || ls.avoids(pods) != podsAvoided || ls.avoids(secrets) != secretsAvoided {
				t.Errorf("%d are avoided, %t, %t; want %d, %t, %t", n, ls.avoids(pods), ls.avoids(secrets), now, podsAvoided, secretsAvoided)
			}
		}
		want(2, true, true)
		time.Sleep(roomIn)
		want(1, true, true)
		time.Sleep(ls.idle)
		want(1, true, false)
		time.Sleep(avoidFor)
		want(0, false, false)
	})
}
