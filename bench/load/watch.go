//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
)

// A Watch checks that it gets every write of every object that its filter matches, once, in order,
// and nothing else. It belongs to the holder of its reader's mu.
type Watch struct {
	scan   scanner
	filter Filter
	lean   bool     // its objects have no metadata.managedFields
	last   []uint64 // for each object, the number of the last write
	over   carrier
	silent bool  // its events do not count, because it is no part of a fleet
	ended  error // why it has ended; nil as long as it lasts
}

// A carrier is the connection of one or more watches.
type carrier interface {
	// end ends a watch. The reader is the connection's.
	end(w *Watch, r *reader)
}

// count takes one event, and counts it unless the watch is silent.
func (w *Watch) count(line []byte, t *tally) error {
	seq, bookmark, err := w.event(line)
	switch {
	case err != nil:
		return err
	case w.silent:
	case bookmark:
		t.bookmarks.Add(1)
	default:
		t.deliver(seq)
	}
	return nil
}

// managedMark is in each object with managed fields, and in no other of this program.
var managedMark = []byte(`"managedFields":`)

var errNotLean = errors.New("an object with managedFields, where they were not wanted")

// event takes one event and returns the number of its write. For a bookmark there is no number.
func (w *Watch) event(line []byte) (seq uint64, bookmark bool, err error) {
	seq, ok, err := seqOf(line)
	if err != nil || !ok {
		return 0, err == nil, err
	}
	if w.lean && bytes.Contains(line, managedMark) {
		return 0, false, errNotLean
	}
	n := uint64(len(w.last))
	object := seq % n
	if !w.filter.match(int(object)) {
		return 0, false, fmt.Errorf("event of object %d, which the filter %q excludes", object, w.filter.query)
	}
	if want := w.last[object] + n; seq != want {
		return 0, false, fmt.Errorf("object %d: got write %d after %d, want %d", object, seq, w.last[object], want)
	}
	w.last[object] = seq
	return seq, false, nil
}
