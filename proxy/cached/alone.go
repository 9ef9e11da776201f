package cached

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aloneReads counts, for each resource, the small consistent reads that are passed through. For the
// first few at a time, the answer costs kube-apiserver as little as the proof that a cache is
// current; see Reads.passesAlone. Gets are counted before the review. The counts therefore live
// outside the lanes and depend on no cached data. Its methods may be called from any goroutine.
type aloneReads struct {
	most int // at a time, of one resource

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]*aloneState
}

type aloneState struct {
	reads   int       // under way
	crowded time.Time // when there last were too many
	// unfollowed is the end of the time in which gets are passed through because an allowed client
	// has found that the resource has no lane.
	unfollowed time.Time
}

const (
	// crowd is how long a crowd of reads is expected to last. Reads that arrive meanwhile share
	// proofs.
	crowd = time.Second
	// unfollowedFor is how long all gets of a resource without a lane are passed through without a
	// review. It equals the default TTL of a review's answer. The start of a lane ends it.
	unfollowedFor = 10 * time.Second
	// mostCounted bounds the remembered resources. Anybody with a token can name a resource. A
	// cluster has a few hundred.
	mostCounted = 1024
)

func newAloneReads(most int) *aloneReads {
	return &aloneReads{most: most, resources: make(map[schema.GroupVersionResource]*aloneState)}
}

// take reports whether a read that arrived at this time may pass alone. The read counts until give
// is called.
func (a *aloneReads) take(gvr schema.GroupVersionResource, arrived time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stateLocked(gvr)
	if s == nil || arrived.Sub(s.crowded) < crowd {
		return false
	}
	if s.reads >= a.most {
		s.crowded = arrived
		return false
	}
	s.reads++
	return true
}

func (a *aloneReads) give(gvr schema.GroupVersionResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resources[gvr].reads-- // present, because a resource with reads is not removed
}

// noteUnfollowed notes that an allowed client has found no lane of the resource. noteFollowed notes
// that a lane starts.
func (a *aloneReads) noteUnfollowed(gvr schema.GroupVersionResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.stateLocked(gvr); s != nil {
		s.unfollowed = time.Now().Add(unfollowedFor)
	}
}

func (a *aloneReads) noteFollowed(gvr schema.GroupVersionResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.resources[gvr]; s != nil {
		s.unfollowed = time.Time{}
	}
}

// unfollowed reports whether the resource is known to have no lane.
func (a *aloneReads) unfollowed(gvr schema.GroupVersionResource) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.resources[gvr]
	return s != nil && time.Now().Before(s.unfollowed)
}

// stateLocked returns the state of a resource, or nil if there is no room for another.
func (a *aloneReads) stateLocked(gvr schema.GroupVersionResource) *aloneState {
	if s := a.resources[gvr]; s != nil {
		return s
	}
	if len(a.resources) >= mostCounted {
		now := time.Now()
		for other, s := range a.resources {
			if s.reads == 0 && now.Sub(s.crowded) >= crowd && now.After(s.unfollowed) {
				delete(a.resources, other)
			}
		}
	}
	if len(a.resources) >= mostCounted {
		return nil
	}
	s := &aloneState{}
	a.resources[gvr] = s
	return s
}
