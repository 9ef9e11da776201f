package fanout

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/framing"
)

// view is what a filter selects by besides what its client asks for. The zero value selects all.
type view struct {
	form       *framing.Trim // that selects objects or is quiet; nil for none
	namespaces *Namespaces   // nil for all
}

// In returns a filter that selects of what f selects what a view has: the objects of form, which lie
// in the namespaces, if those are not nil. The history says which objects a view has had, as it says
// that of any selector.
func (f *Filter) In(form *framing.Trim, namespaces *Namespaces) *Filter {
	if !form.Selects() && !form.Quiet() && namespaces == nil {
		return f
	}
	in := *f
	in.view = view{form, namespaces}
	in.fixed = in.fixed && !form.Selects() && !form.Quiet() && namespaces == nil
	in.key += fmt.Sprintf(" view %p %p", form, namespaces)
	in.cost++
	in.size = in.sizeOf()
	return &in
}

// Selects reports whether the view has a part of the objects only.
func (v *view) Selects() bool { return v.form.Selects() || v.namespaces != nil }

// Outdated reports whether a client that has seen the state as of resourceVersion rv may have seen
// another one than the view had then.
func (v *view) Outdated(rv uint64) bool {
	return v.namespaces != nil && rv < v.namespaces.selected.Load().since
}

// Namespaces are those that a label selector selects, as the filters of one cache see them.
type Namespaces struct {
	selector labels.Selector
	selected atomic.Pointer[selected]
	asked    MonotonicTime // when a filter last asked for them; guarded by the cache's mutex
}

// selected are the namespaces that a selector selects. It is immutable.
type selected struct {
	has     map[string]bool // of each namespace that there is
	since   uint64          // the resourceVersion from which on it has said so
	version uint64          // how often has has changed
}

// has reports whether a namespace is selected. n may be nil, for all.
func (n *Namespaces) has(namespace string) bool { return n == nil || n.selected.Load().has[namespace] }

// unknown reports whether it is not known if a namespace was selected, because it was deleted before the
// cache began. The deletion of an object there is told: the client may have the object.
func (n *Namespaces) unknown(namespace string) bool {
	if n == nil {
		return false
	}
	_, there := n.selected.Load().has[namespace]
	return !there
}

// mostDeleted bounds the deleted namespaces that Namespaces know.
const mostDeleted = 4096

// choose returns which namespaces the selector selects. It keeps those that have been deleted while
// they were selected: their objects' deletions may still come, and another namespace of the name may
// not be selected.
func (n *Namespaces) choose(all map[string]labels.Set, before map[string]bool) map[string]bool {
	selected, deleted := make(map[string]bool, len(all)), 0
	for name, in := range before {
		if _, there := all[name]; in && !there && deleted < mostDeleted {
			selected[name] = true
			deleted++
		}
	}
	for name, set := range all {
		selected[name] = n.selector.Matches(set)
	}
	return selected
}

// NamespaceLabels are the namespaces that there are. They are immutable.
type NamespaceLabels struct {
	ByName map[string]labels.Set
	// Since is the resourceVersion after which no namespace that there was before has had other labels.
	Since uint64
	// Gap says that some may have had other labels in between.
	Gap bool
	// Restored is the resourceVersion to which upstream has gone back since what was told before; 0 if it has not.
	Restored uint64
}

// spaces is what a cache knows of namespaces. The cache's mutex guards it.
type spaces struct {
	known      *NamespaceLabels
	bySelector map[string]*Namespaces // that filters use
}

const (
	// mostSelectors bounds the selectors that are kept although no subscription uses them.
	mostSelectors = 64
	// keepSelectorFor is how long others are kept too. A read may still wait that has asked for one, and
	// a client may resume from what it has been shown.
	keepSelectorFor = 10 * time.Minute
)

// Namespaces returns the namespaces that a selector selects; nil for a nil selector. The cache keeps
// them up to date. It has been told of the namespaces ([Cache.SetNamespaces]).
func (c *Cache) Namespaces(selector labels.Selector) *Namespaces {
	if selector == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := selector.String()
	n := c.spaces.bySelector[key]
	if n == nil {
		n = &Namespaces{selector: selector}
		n.selected.Store(&selected{has: n.choose(c.spaces.known.ByName, nil), since: c.sinceLocked()})
		c.spaces.bySelector[key] = n
	}
	n.asked = MonotonicNow()
	return n
}

// SetApart says that the cache's resourceVersions may be of another etcd than those of namespaces, as
// kube-apiserver's --etcd-servers-overrides says of events in many clusters. It is called before the cache is used.
func (c *Cache) SetApart() { c.apart = true }

// Seeded says that the cache is about to be filled with what another process was sent, and that upstream has come to
// resourceVersion rv since. Clients of that process resume here, and namespaces may have had other labels then.
func (c *Cache) Seeded(rv uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.apart {
		return // NamespaceLabels.Since says it
	}
	c.seeded = rv
	for _, n := range c.spaces.bySelector {
		now := *n.selected.Load()
		now.since = max(now.since, c.sinceLocked())
		n.selected.Store(&now)
	}
}

// sinceLocked returns NamespaceLabels.Since in resourceVersions of the cache: what it has shown, if those say nothing
// of namespaces. Of what another process has shown, Since says it if both are of one etcd, and is too late otherwise.
func (c *Cache) sinceLocked() uint64 {
	if c.apart {
		return max(c.shownLocked(), min(c.spaces.known.Since, c.seeded))
	}
	return c.spaces.known.Since
}

// SelectsNamespaces reports whether a subscription's view selects namespaces by their labels.
func (c *Cache) SelectsNamespaces() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if g.filter.namespaces != nil {
			return true
		}
	}
	return false
}

// SetNamespaces tells the cache which namespaces there are. Where objects enter or leave a view by
// that, its subscriptions end with ending: no event of the collection says so, and no resourceVersion
// of it says whether a client knows. Who resumes from a resourceVersion before gets [ErrOutdated]. One
// goroutine at a time calls it.
func (c *Cache) SetNamespaces(known *NamespaceLabels, ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spaces.known == known {
		return
	}
	before := c.spaces.known
	c.spaces.known = known
	inhabited := sync.OnceValue(func() map[string]bool { return c.inhabitedLocked(before.ByName) })
	used, now := make(map[*Namespaces]bool), MonotonicNow()
	for _, g := range c.groups {
		used[g.filter.namespaces] = true
	}
	for key, n := range c.spaces.bySelector {
		unused := !used[n] && now-n.asked >= MonotonicTime(keepSelectorFor)
		if unused && len(c.spaces.bySelector) > mostSelectors {
			delete(c.spaces.bySelector, key)
		} else if c.moveLocked(n, inhabited) {
			c.endLocked(ending, func(g *group) bool { return g.filter.namespaces == n })
		}
	}
}

// moveLocked makes n what its selector selects now. It reports whether objects have entered or left it.
func (c *Cache) moveLocked(n *Namespaces, inhabited func() map[string]bool) (moved bool) {
	before := n.selected.Load()
	now := &selected{has: n.choose(c.spaces.known.ByName, before.has), since: before.since, version: before.version}
	if back := c.spaces.known.Restored; back > 0 && !c.apart { // perhaps before the cache began, which has not gone back then
		now.since = min(now.since, max(back, c.shownLocked()+1))
	}
	if c.spaces.known.Gap {
		now.since = max(now.since, c.sinceLocked())
	}
	for name, in := range now.has {
		was, there := before.has[name]
		if in == was {
			continue
		}
		if there { // a client that comes from before may hold objects, or lack them
			now.since = max(now.since, c.sinceLocked())
		}
		if inhabited()[name] {
			// What clients have been shown up to now had other objects. They may list and watch from the same
			// resourceVersion in vain until there is a later one, which a proof soon is.
			now.since, moved = max(now.since, c.sinceLocked(), c.shownLocked()+1), true
		}
	}
	if !maps.Equal(before.has, now.has) {
		now.version++
	}
	n.selected.Store(now)
	return moved
}

// restored says that upstream has gone back to resourceVersion rv. Nobody resumes from before it, and what was
// said of later ones is of others than those that are yet to come.
func (s *spaces) restored(rv uint64) {
	known := *s.known
	known.Since = min(known.Since, rv)
	s.known = &known
	for _, n := range s.bySelector {
		now := *n.selected.Load()
		now.since = min(now.since, rv)
		n.selected.Store(&now)
	}
}

// inhabitedLocked returns the namespaces, of those that are new or have had other labels before, of which the
// cache holds an object, or has a change. No selector selects another than before. The history is long, and read
// once for all of them.
func (c *Cache) inhabitedLocked(before map[string]labels.Set) map[string]bool {
	inhabited, empty := make(map[string]bool), 0
	for name, set := range c.spaces.known.ByName {
		if was, there := before[name]; there && maps.Equal(was, set) {
			continue
		}
		has := false
		c.objects.tree.AscendGreaterOrEqual(&framing.Object{Key: name + "/"}, func(o *framing.Object) bool {
			has = o.Namespace == name
			return false
		})
		if inhabited[name] = has; !has {
			empty++
		}
	}
	for i := 0; i < len(c.history.changes) && empty > 0; i++ {
		of := c.history.changes[i].Object.Namespace
		if has, asked := inhabited[of]; asked && !has {
			inhabited[of] = true
			empty--
		}
	}
	return inhabited
}
