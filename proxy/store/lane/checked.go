package lane

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
)

// CheckResult is the result of a comparison of a lane with upstream.
type CheckResult string

const (
	CheckEqual     CheckResult = "equal"
	CheckDifferent CheckResult = "different"
	CheckFailed    CheckResult = "failed" // the two could not be compared
)

// Checked is a comparison of a lane with upstream; see package selfcheck.
type Checked struct {
	Result CheckResult
	Time   time.Time // when it ended
	Took   time.Duration

	// Of the lane's objects, and not set if the comparison failed. The list that they were compared
	// with is as of ResourceVersion.
	ResourceVersion uint64
	Digest          string
	Objects         int
}

// CheckedStatus is the last comparison of a lane with upstream, as /debug/lanes shows it. The
// digest is that of the last comparison that did not fail.
type CheckedStatus struct {
	Result  CheckResult `json:"result"`
	Time    time.Time   `json:"time"`    // when it ended
	Seconds float64     `json:"seconds"` // that it took, rests included

	ResourceVersion string `json:"resourceVersion,omitempty"` // that the digest is of
	Digest          string `json:"digest,omitempty"`          // of all objects' keys, uids and resourceVersions
	Objects         int    `json:"objects"`                   // in the digest
}

// NoteChecked notes a comparison of the lane with upstream, and counts it. If it found a
// difference, the collection is listed again. One goroutine at a time calls it.
func (l *Lane) NoteChecked(c Checked) {
	if last := l.checked.Load(); c.Result == CheckFailed && last != nil {
		c.ResourceVersion, c.Digest, c.Objects = last.ResourceVersion, last.Digest, last.Objects
	}
	l.checked.Store(&c)
	if c.Result == CheckDifferent {
		l.reflector.RequireRelist(c.ResourceVersion)
	}
	l.metrics.checks[c.Result].Inc()
}

// checkedStatus returns the last comparison of the lane with upstream, nil for none.
func (l *Lane) checkedStatus(now time.Time) *CheckedStatus {
	c := l.checked.Load()
	if c == nil {
		return nil
	}
	s := &CheckedStatus{
		Result: c.Result, Time: ShownAt(now, c.Time), Seconds: c.Took.Seconds(), Digest: c.Digest, Objects: c.Objects,
	}
	if c.Digest != "" {
		s.ResourceVersion = strconv.FormatUint(c.ResourceVersion, 10)
	}
	return s
}

// Collections returns the lanes that hold the objects of a resource and have been filled, by
// resource. Lanes of one resource hold the same objects in different representations.
func (ls *Lanes) Collections() map[schema.GroupVersionResource][]*Lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	collections := make(map[schema.GroupVersionResource][]*Lane)
	for key, l := range ls.byKey {
		if key.Table == "" && l.Synced() && !l.outdated.Load() {
			collections[key.GVR] = append(collections[key.GVR], l)
		}
	}
	return collections
}

// MemoryShort reports whether memory is so short that no lane begins.
func (ls *Lanes) MemoryShort() bool { return ls.memory.short() }

// ListIdentities lists a page of what upstream has; see [reflector.Collection].
func (l *Lane) ListIdentities(
	ctx context.Context, limit int, token string, rv uint64, f func(framing.Identity) error,
) (framing.ListMeta, error) {
	return l.collection.ListIdentities(ctx, limit, token, rv, f)
}

// Reach waits until the cache has reached resourceVersion rv. Scouts see to that, so a quiet
// resource takes seconds. One without a watch cache upstream may never get there.
func (l *Lane) Reach(ctx context.Context, rv uint64) error {
	if l.Uncached() {
		return l.Cache.WaitFor(ctx, rv)
	}
	return l.prover.await(ctx, reachTimeout, rv)
}

// reachTimeout is how long a scout of Reach may take.
const reachTimeout = 5 * time.Second
