package cached

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	alonePods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	aloneFoos = schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "foos"}
)

// The first few reads of a resource pass through. Reads beside many others do not, and no read does
// within the next second.
func TestAloneReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAloneReads(2)
		f := func(gvr schema.GroupVersionResource, want bool) {
			t.Helper()
			if got := a.take(gvr, time.Now()); got != want {
				t.Errorf("%s passes alone: %t, want %t", gvr, got, want)
			}
		}
		f(alonePods, true)
		f(alonePods, true)
		f(aloneFoos, true)
		a.give(alonePods)
		f(alonePods, true)
		f(alonePods, false)
		a.give(alonePods)
		f(alonePods, false) // the crowd
		f(aloneFoos, true)
		time.Sleep(crowd)
		f(alonePods, true)
		f(alonePods, false)
		a = newAloneReads(0)
		f(alonePods, false)
	})
}

// For a while, it is remembered that a resource has no lane, unless a lane starts.
func TestAloneUnfollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAloneReads(2)
		f := func(want bool) {
			t.Helper()
			if got := a.unfollowed(alonePods); got != want {
				t.Errorf("unfollowed: %t, want %t", got, want)
			}
		}
		f(false)
		a.noteUnfollowed(alonePods)
		f(true)
		time.Sleep(unfollowedFor)
		f(false)
		a.noteUnfollowed(alonePods)
		a.noteFollowed(alonePods)
		f(false)
		a.noteFollowed(aloneFoos)
	})
}

// Reads of ever new resources take bounded memory. A resource with a read under way is not
// forgotten.
func TestAloneReadsBounded(t *testing.T) {
	a := newAloneReads(1)
	named := func(i int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: fmt.Sprint("g", i), Version: "v1", Resource: "x"}
	}
	passed, now := 0, time.Now()
	for i := range 10 * mostCounted {
		if a.take(named(i), now) {
			passed++
		}
	}
	if passed != mostCounted || len(a.resources) != mostCounted {
		t.Errorf("%d passed, %d resources are remembered", passed, len(a.resources))
	}
	for i := range mostCounted - 1 {
		a.give(named(i + 1))
	}
	if !a.take(named(-1), now) {
		t.Error("nothing was forgotten")
	}
	if a.take(named(0), now) {
		t.Error("a read under way was forgotten")
	}
}
