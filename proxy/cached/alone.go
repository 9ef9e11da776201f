package cached

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aloneReads counts, for each resource, the consistent reads of little that are passed through
// because kube-apiserver answers the first few at a time as easily as it says how new a cache is;
// see read.passesAlone. Gets are counted before anybody is asked whether the client may read,
// so this is no lane and knows nothing that is cached. Its methods may be called from any
// goroutine.
type aloneReads struct {
	most int // at a time, of one resource

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]*aloneState
}

type aloneState struct {
	reads      int       // under way
	crowded    time.Time // when there last were too many
	unfollowed time.Time // until when gets are passed through: a client that may read has found that the resource has no lane
}

const (
	// crowd is how long a crowd of reads is expected to last: all that come meanwhile share proofs.
	crowd = time.Second
	// unfollowedFor is how long gets of a resource without a lane are passed through, all of them
	// and without a review: as long as a review would be believed. A lane that starts ends it.
	unfollowedFor = 10 * time.Second
	// mostCounted bounds the resources that are remembered, which anybody with a token can name. A
	// cluster has a few hundred.
	mostCounted = 1024
)

func newAloneReads(most int) *aloneReads {
	return &aloneReads{most: most, resources: make(map[schema.GroupVersionResource]*aloneState)}
}

// take reports whether a read that arrived then may pass alone. It counts until give is called.
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
	a.resources[gvr].reads-- // it is kept while it has any
}

// noteUnfollowed notes that a client that may read has found no lane of the resource; noteFollowed,
// that one starts.
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

// stateLocked returns what is known of a resource, nil if there is no room for another.
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
