package fanout

import (
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// Extend makes the history begin after resourceVersion after. events are all changes after it, up
// to until, in order; until is where the history began so far. Extend reports whether the events
// fit. They do not if the history has meanwhile forgotten something.
func (c *Cache) Extend(events []framing.Event, after, until uint64) bool {
	replayed := make([]*change, 0, len(events))
	received, bytes := time.Now(), int64(0)
	for _, ev := range events {
		e := passed(ev, received)
		bytes += e.size()
		replayed = append(replayed, e)
	}
	resolve(replayed, make(map[string]*framing.Object))
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.history
	if h.inGap(until) || h.live < h.next && h.at(h.live).ResourceVersion <= until {
		return false // the rest of a relist, or of a lease's expiry, does not continue from there
	}
	if h.after != until || after >= until ||
		h.bytes+bytes > h.maxBytes || len(h.replayed())+len(replayed) > h.maxEvents {
		return false
	}
	again := slices.ContainsFunc(h.replayed(), (*change).unresolved)
	h.changes = append(replayed, h.changes...)
	h.bytes += bytes
	h.after = after
	if again { // the versions before some of those are known now
		resolve(h.replayed(), make(map[string]*framing.Object))
	}
	return true
}

// UnresolvedKeys returns the keys of the objects whose versions as of resourceVersion after, where
// the history begins, would decide what clients with selectors get of it. There are none unless the
// history has been extended.
func (c *Cache) UnresolvedKeys() (keys []string, after uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]struct{})
	for _, e := range c.history.replayed() {
		if _, ok := seen[e.Object.Key]; !ok && e.unresolved() {
			keys = append(keys, e.Object.Key)
		}
		seen[e.Object.Key] = struct{}{}
	}
	return keys, c.history.after
}

// ResolvePrevious provides the versions of objects as of resourceVersion after, at least of those
// that [Cache.UnresolvedKeys] has named. It reports whether everything is resolved now. It reports
// false if an object is missing, or if the history begins elsewhere meanwhile.
func (c *Cache) ResolvePrevious(objects []*framing.Object, after uint64) bool {
	known := make(map[string]*framing.Object, len(objects))
	for _, o := range objects {
		known[o.Key] = o
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.history
	if h.after != after {
		return false
	}
	resolve(h.replayed(), known)
	return !slices.ContainsFunc(h.replayed(), (*change).unresolved)
}

// resolve finds the unknown previous versions of consecutive changes: in known, which is by key, and
// among the changes before. It modifies known.
func resolve(changes []*change, known map[string]*framing.Object) {
	for i, e := range changes {
		if prev := known[e.Object.Key]; e.PrevUnknown && prev != nil {
			// Other goroutines may be reading the old one.
			changes[i] = &change{
				Type: e.Type, Object: e.Object, Prev: prev, ResourceVersion: e.ResourceVersion, Received: e.Received,
			}
		}
		if e.Type == framing.Deleted {
			delete(known, e.Object.Key)
		} else {
			known[e.Object.Key] = e.Object
		}
	}
}
