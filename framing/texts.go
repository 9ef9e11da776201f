package framing

import (
	"hash/maphash"
	"maps"
)

// texts makes the labels and the field values of a scanner's objects. It saves memory where objects
// repeat each other. Objects that come one after the other and have the same labels, as the
// replicas of a Deployment in a list, share one map. Others share strings. The zero value is ready
// for use. One goroutine uses it at a time.
type texts struct {
	labels map[string]string  // of the object that is being scanned
	last   map[string]string  // of the last object that has some; not changed any more
	recent *[textSlots]string // a string is at the index that its hash gives; nil at first
	seed   maphash.Seed       // of those hashes; set with recent
}

const (
	// textSlots is the number of strings that a scanner remembers, and longestText the length of
	// the longest in bytes: a label's value has 63 at most.
	textSlots   = 512
	longestText = 64
	// mostKeptLabels is the size of the largest map that is kept for the next object.
	mostKeptLabels = 64
)

// text returns b as a string, the same one for the same bytes if they have been seen lately.
func (t *texts) text(b []byte) string {
	if len(b) == 0 || len(b) > longestText {
		return string(b)
	}
	if t.recent == nil {
		t.recent, t.seed = new([textSlots]string), maphash.MakeSeed()
	}
	slot := &t.recent[maphash.Bytes(t.seed, b)%textSlots]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}

// beginLabels begins the labels of the next object.
func (t *texts) beginLabels() {
	if len(t.labels) > mostKeptLabels {
		t.labels = nil
	}
	clear(t.labels)
}

// addLabel adds a label. The last of those with the same key counts.
func (t *texts) addLabel(key, value string) {
	if t.labels == nil {
		t.labels = make(map[string]string)
	}
	t.labels[key] = value
}

// madeLabels returns the labels that have been added since beginLabels, nil for none. Nobody
// changes them.
func (t *texts) madeLabels() map[string]string {
	if len(t.labels) == 0 {
		return nil
	}
	if !maps.Equal(t.labels, t.last) {
		t.last = maps.Clone(t.labels)
	}
	return t.last
}
