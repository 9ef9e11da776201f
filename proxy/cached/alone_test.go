package cached

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

		none := newAloneReads(0)
		if none.take(alonePods, time.Now()) {
			t.Error("one of none passes alone")
		}
	})
}

// A write earns one get of its resource, which passes through beside any crowd, within a second. A
// burst of gets passes no more than writes have earned, and there is a bound.
func TestAloneEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAloneReads(2)
		passed := func(gvr schema.GroupVersionResource, n int) (passed int) {
			for range n {
				if a.takeEarned(gvr, time.Now()) {
					passed++
				}
			}
			return passed
		}
		if n := passed(alonePods, 3); n > 0 {
			t.Errorf("%d gets pass before any write", n)
		}
		a.noteWritten(alonePods)
		a.noteWritten(alonePods)
		if foos, pods := passed(aloneFoos, 9), passed(alonePods, 9); foos != 0 || pods != 2 {
			t.Errorf("after two writes of pods, %d gets of them pass, and %d of another resource", pods, foos)
		}
		for range 2 * mostEarned {
			a.noteWritten(alonePods)
		}
		if n := passed(alonePods, 2*mostEarned); n != mostEarned {
			t.Errorf("%d gets pass, want %d", n, mostEarned)
		}
		a.noteWritten(alonePods)
		time.Sleep(earnedFor)
		if n := passed(alonePods, 1); n > 0 {
			t.Error("a get passes long after the write")
		}
		a.noteWritten(alonePods)
		if n := passed(alonePods, 2); n != 1 {
			t.Errorf("%d gets pass after one write", n)
		}

		none := newAloneReads(0)
		none.noteWritten(alonePods)
		if none.takeEarned(alonePods, time.Now()) {
			t.Error("one of none passes")
		}
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
	synctest.Test(t, func(t *testing.T) {
		a := newAloneReads(1)
		if !a.take(alonePods, time.Now()) {
			t.Fatal("the first read does not pass")
		}
		named := func(i int) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: fmt.Sprint("g", i), Version: "v1", Resource: "x"}
		}
		passed := 0
		for i := range 10 * mostCounted {
			if a.take(named(i), time.Now()) {
				passed++
			}
		}
		if passed != mostCounted-1 || len(a.resources) != mostCounted {
			t.Errorf("%d passed, %d resources are remembered", passed, len(a.resources))
		}
		for i := range mostCounted - 1 {
			a.give(named(i))
		}
		if !a.take(named(-1), time.Now()) {
			t.Error("nothing was forgotten")
		}
		if a.take(alonePods, time.Now()) {
			t.Error("a read under way was forgotten")
		}
		a.give(alonePods)
	})
}

var (
	alonePods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	aloneFoos = schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "foos"}
)
