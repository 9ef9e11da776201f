package attack_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// scope is a client's selection.
type scope struct {
	tenant   string // namespace; "" is all of them
	resource string
	gold     bool   // label selector tier=gold
	name     string // field selector metadata.name=NAME
}

func (s scope) covers(o *object) bool {
	return o.resource == s.resource && (s.tenant == "" || o.tenant == s.tenant) && (!s.gold || o.gold) &&
		(s.name == "" || o.name == s.name)
}

func (s scope) String() string {
	return fmt.Sprintf("%s of tenant %q with %q", s.resource, s.tenant, s.selectors())
}

// uri returns the path of the collection.
func (s scope) uri() string {
	if s.tenant == "" {
		return "/api/v1/" + s.resource
	}
	return "/api/v1/namespaces/" + s.tenant + "/" + s.resource
}

// selectors returns the query's parameters that select, each with an & behind it.
func (s scope) selectors() (query string) {
	if s.gold {
		query += "labelSelector=tier%3Dgold&"
	}
	if s.name != "" {
		query += "fieldSelector=metadata.name%3D" + s.name + "&"
	}
	return query
}

// follower checks what a watch brings against the steady writer's updates.
type follower struct {
	scope   scope
	objects []*object

	mu   sync.Mutex
	last map[int]uint64 // the number that was seen last, by object; nil: it has no state yet
}

// floor returns the last acknowledged update of each object in scope. A consistent state that is
// asked for from now on may not be older.
func (f *follower) floor() map[int]uint64 {
	floor := make(map[int]uint64)
	for _, o := range f.objects {
		if f.scope.covers(o) {
			floor[o.index] = o.acknowledged()
		}
	}
	return floor
}

// begin takes a state: each object in scope, no other, and none older than floor. A nil floor
// allows any age.
func (f *follower) begin(state []beat, floor map[int]uint64) error {
	last := make(map[int]uint64)
	for _, b := range state {
		if err := f.covered(b); err != nil {
			return err
		}
		if _, twice := last[b.object]; twice {
			return fmt.Errorf("object %d comes twice in one state", b.object)
		}
		last[b.object] = b.n
	}
	for _, o := range f.objects {
		n, ok := last[o.index]
		switch {
		case !f.scope.covers(o):
		case !ok:
			return fmt.Errorf("object %d is missing in the state of %s", o.index, f.scope)
		case n < floor[o.index]:
			return fmt.Errorf("stale: object %d is as of update %d, and %d had been acknowledged before the request",
				o.index, n, floor[o.index])
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = last
	return nil
}

// take takes a change.
func (f *follower) take(b beat) error {
	if err := f.covered(b); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch last := f.last[b.object]; {
	case f.last == nil:
		return fmt.Errorf("object %d, update %d comes before the state", b.object, b.n)
	case b.n == last:
		return fmt.Errorf("repeated: object %d, update %d", b.object, b.n)
	case b.n < last:
		return fmt.Errorf("out of order: object %d, update %d behind %d", b.object, b.n, last)
	case b.n > last+1:
		return fmt.Errorf("lost: object %d, update %d behind %d", b.object, b.n, last)
	}
	f.last[b.object] = b.n
	return nil
}

func (f *follower) covered(b beat) error {
	if b.object < 0 || b.object >= len(f.objects) || !f.scope.covers(f.objects[b.object]) {
		return fmt.Errorf("object %d is not of %s", b.object, f.scope)
	}
	return nil
}

// forget makes the next state a new beginning.
func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// begun returns an error as long as f has no state.
func (f *follower) begun() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return errors.New("it has no state")
	}
	return nil
}

// behind returns an error if an acknowledged update has not been seen.
func (f *follower) behind() error {
	floor := f.floor()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(floor)) {
		if n, ok := f.last[i]; !ok || n < floor[i] {
			return fmt.Errorf("object %d of %s: update %d is acknowledged, and %d was seen last", i, f.scope, floor[i],
				n)
		}
	}
	return nil
}
