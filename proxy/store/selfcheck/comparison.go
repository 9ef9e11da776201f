package selfcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/store/lane"
)

const (
	// catchUp is how long the lanes may take to reach the resourceVersion of the first list. Lanes of
	// busy resources reach it at once, and those of quiet ones may not.
	catchUp = 200 * time.Millisecond
	// reachTimeout is how long a lane may take to reach that of the second.
	reachTimeout = 10 * time.Second
	// timeout is how long a list may take. etcd forgets its resourceVersion after 5 minutes or later.
	timeout = 5 * time.Minute
)

// compare compares lanes of one resource with upstream, and notes the result with each. It reports
// whether one of them was different.
//
// A first difference is none yet: perhaps the lane was not there. Or upstream sent another change with
// the list's resourceVersion later, as when a lease expires.
func compare(ctx context.Context, lanes []*lane.Lane) (different bool) {
	doubtful := compareOnce(ctx, lanes, false)
	return len(doubtful) > 0 && len(compareOnce(ctx, doubtful, true)) > 0
}

// compareOnce compares lanes with one list, and returns those that differ. If sure, they have reached the
// list's resourceVersion, and their difference is noted.
func compareOnce(ctx context.Context, lanes []*lane.Lane, sure bool) (different []*lane.Lane) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	x, sides := &list{lane: lanes[0], limit: pageLimit(lanes[0].Cache.Stats())}, make([]side, len(lanes))
	for i := range sides {
		sides[i].Lane = lanes[i]
		defer sides[i].end()
	}
	err := x.compare(ctx, sides, sure)
	for i := range sides {
		s := &sides[i]
		c := lane.Checked{Result: lane.CheckEqual, Time: time.Now(), Seconds: time.Since(began).Seconds(),
			ResourceVersion: x.rv, Digest: s.digest.String(), Objects: s.digest.objects}
		switch err := cmp.Or(err, s.err); {
		case errors.Is(context.Cause(ctx), context.Canceled): // the server stops
			return nil
		case err != nil:
			c.Result = lane.CheckFailed
			s.Log.Info("Self-check failed", "err", err, "elapsed", time.Since(began).Round(time.Millisecond))
		case len(s.named) > 0:
			different = append(different, s.Lane)
			if !sure {
				continue
			}
			c.Result = lane.CheckDifferent
			s.Log.Error("Self-check found objects that differ from kube-apiserver's", "resourceVersion", x.rv, "keys", s.named,
				"digest", s.digest, "upstreamDigest", x.digest)
		}
		s.NoteChecked(c)
	}
	return different
}

// compare requests the whole list, and compares the lanes' snapshots of right after its first page.
func (x *list) compare(ctx context.Context, sides []side, sure bool) error {
	page, token, err := x.next(ctx, "")
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for i := range sides {
		sides[i].begin(ctx, soon, x.rv, sure)
	}
	for {
		for i := range sides {
			for _, o := range page {
				sides[i].compare(o)
			}
		}
		if token == "" {
			break
		}
		if page, token, err = x.next(ctx, token); err != nil {
			return err
		}
	}
	for i := range sides {
		sides[i].rest()
	}
	return nil
}

// side is a lane's side of a comparison: a walk over its snapshot, beside the list.
type side struct {
	*lane.Lane
	next func() (*framing.Object, bool)
	stop func() // nil before next is there

	held   *framing.Object // the next one to be compared; nil at the end
	digest digest          // of the snapshot's objects up to held
	named  []string        // the first that differ
	err    error           // why the lane can't be compared
}

// begin begins with a snapshot at resourceVersion rv. If the lane is not there soon, that is the latest one,
// or an error if the snapshot must be sure.
func (s *side) begin(ctx, soon context.Context, rv uint64, sure bool) {
	var err error
	if sure {
		wait, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		err = s.Freshness.Reach(wait, rv)
	} else {
		err = s.Cache.WaitFor(soon, rv)
	}
	snapshot, ok := fanout.Snapshot{}, false
	if err == nil {
		snapshot, ok = s.Cache.SnapshotAt(rv)
	}
	switch {
	case !ok && sure:
		s.err = fmt.Errorf("at %d, the list at %d: %w", s.Cache.Progress(), rv, cmp.Or(err, fanout.ErrExpired))
		snapshot = s.Cache.Snapshot()
	case !ok:
		snapshot = s.Cache.Snapshot()
	}
	s.next, s.stop = iter.Pull(snapshot.All)
	s.advance()
}

func (s *side) end() {
	if s.stop != nil {
		s.stop()
	}
}

// advance goes on to the next object of the snapshot.
func (s *side) advance() {
	o, ok := s.next()
	if s.held = o; ok {
		s.digest.add(hash(o.Key, o.UID(), o.ResourceVersion))
	}
}

// compare compares the next object that upstream lists. Both sides are in the order of their keys.
func (s *side) compare(l listed) {
	for s.held != nil && s.held.Key < l.key {
		s.extra()
	}
	switch {
	case s.held == nil || s.held.Key > l.key:
		s.name(l.key, "missing")
		return
	case s.held.ResourceVersion != l.rv:
		s.name(l.key, fmt.Sprintf("at %d, kube-apiserver at %d", s.held.ResourceVersion, l.rv))
	case s.held.UID() != l.uid:
		s.name(l.key, "another uid")
	}
	s.advance()
}

// rest goes to the end of the snapshot, behind the last object that upstream lists.
func (s *side) rest() {
	for s.held != nil {
		s.extra()
	}
}

func (s *side) extra() {
	s.name(s.held.Key, "kube-apiserver does not have it")
	s.advance()
}

// mostNamed is how many of the differences are named.
const mostNamed = 5

func (s *side) name(key, how string) {
	if len(s.named) < mostNamed {
		s.named = append(s.named, key+": "+how)
	}
}
