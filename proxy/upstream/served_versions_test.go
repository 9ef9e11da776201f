package upstream

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func unknown(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("g%d.example", i), Version: "v1", Resource: "things"}
}

// Group versions that do not exist cost one request every missTTL, for any number of them. A new
// group version is noticed within that time.
func TestUnknownGroupsShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeAPI{"/api/v1": resourceList("pods Pod")}
		d, up, _ := newTestDiscovery(api)
		up.Delay = 100 * time.Millisecond
		for round := 1; round <= 3; round++ {
			var clients sync.WaitGroup
			for i := range 200 {
				clients.Go(func() {
					if _, ok := d.Lookup(t.Context(), unknown(i)); ok {
						t.Errorf("%v is found", unknown(i))
					}
				})
			}
			clients.Wait()
			if got := up.Count(); got != round {
				t.Errorf("round %d: %d requests, want one each", round, got)
			}
			time.Sleep(missTTL)
		}
		api["/apis/g7.example/v1"] = resourceList("things Thing")
		var clients sync.WaitGroup
		for range 50 {
			clients.Go(func() {
				if _, ok := d.Lookup(t.Context(), unknown(7)); !ok {
					t.Error("a new group is not found")
				}
			})
		}
		clients.Wait()
		if got := up.Count(); got != 5 {
			t.Errorf("%d requests, want one more for the groups and one for the group", got)
		}
	})
}

// If kube-apiserver does not list its groups, a few group versions are requested without a list.
func TestUnknownGroupsWithoutList(t *testing.T) {
	for _, list := range []string{"503", "down", "null", `{"kind":"Status"}`} {
		synctest.Test(t, func(t *testing.T) {
			d, up, _ := newTestDiscovery(fakeAPI{"/apis": list, "/apis/ex.io/v1": resourceList("foos Foo")})
			if _, ok := d.Lookup(t.Context(), foos); !ok {
				t.Errorf("%s: a group that exists is not found", list)
			}
			for i := range 200 {
				d.Lookup(t.Context(), unknown(i))
			}
			if got := up.Count(); got != 1+mostGuesses {
				t.Errorf("%s: %d requests, want %d", list, got, 1+mostGuesses)
			}
			time.Sleep(DiscoveryTTL)
			if _, ok := d.Lookup(t.Context(), foos); !ok {
				t.Errorf("%s: a known group is no longer found", list)
			}
		})
	}
}
