package selfcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
			sides[i].compare(page, token == "")
		}
		if token == "" {
			return nil
		}
		if page, token, err = x.next(ctx, token); err != nil {
			return err
		}
	}
}

// side is a lane's side of a comparison.
type side struct {
	*lane.Lane
	snapshot fanout.Snapshot
	after    string   // the key of the last object of the snapshot that has been compared
	digest   digest   // of the snapshot's objects up to that
	named    []string // the first that differ
	err      error    // why the lane can't be compared
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
	ok := false
	if err == nil {
		s.snapshot, ok = s.Cache.SnapshotAt(rv)
	}
	if ok {
		return
	}
	s.snapshot = s.Cache.Snapshot()
	if sure {
		s.err = fmt.Errorf("at %d, the list at %d: %w", s.Cache.Progress(), rv, cmp.Or(err, fanout.ErrExpired))
	}
}

// compare compares a page of the list with the objects of the snapshot up to the page's end, or with the rest
// if it is the last page. Both are in the order of their keys.
func (s *side) compare(page []listed, last bool) {
	s.snapshot.Ascend(fanout.Everything, s.after, func(o *framing.Object) bool {
		for len(page) > 0 && page[0].key < o.Key {
			s.name(page[0].key, "missing")
			page = page[1:]
		}
		switch {
		case len(page) == 0 && !last:
			return false // it belongs to the next page
		case len(page) == 0 || page[0].key > o.Key:
			s.name(o.Key, "kube-apiserver does not have it")
		default:
			s.compareOne(o, page[0])
			page = page[1:]
		}
		s.after = o.Key
		s.digest.add(hash(o.Key, o.UID(), o.ResourceVersion))
		return true
	})
	for _, l := range page {
		s.name(l.key, "missing")
	}
}

// compareOne compares an object with what upstream lists of it.
func (s *side) compareOne(o *framing.Object, l listed) {
	switch {
	case o.ResourceVersion != l.rv:
		s.name(l.key, fmt.Sprintf("at %d, kube-apiserver at %d", o.ResourceVersion, l.rv))
	case o.UID() != l.uid:
		s.name(l.key, "another uid")
	}
}

// mostNamed is how many of the differences are named.
const mostNamed = 5

func (s *side) name(key, how string) {
	if len(s.named) < mostNamed {
		s.named = append(s.named, key+": "+how)
	}
}
