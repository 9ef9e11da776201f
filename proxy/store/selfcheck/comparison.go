package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/store/lane"
)

const (
	// catchUp is how long the lanes may take to reach the resourceVersion of the list, after its
	// first page. Lanes of busy resources reach it at once, and those of quiet ones may not.
	catchUp = 200 * time.Millisecond
	// reachTimeout is how long a lane may take to reach it if its state differs from the list.
	reachTimeout = 10 * time.Second
	// timeout is how long a whole comparison may take. etcd forgets the list's resourceVersion
	// after 5 minutes or later.
	timeout = 5 * time.Minute
)

// view is one lane's side of a comparison.
type view struct {
	*lane.Lane
	snapshot fanout.Snapshot
	exact    bool // the snapshot is at the list's resourceVersion, and not before
}

// compare compares lanes of one resource with upstream, and notes the result with each. It reports
// whether one of them was different.
func compare(ctx context.Context, lanes []*lane.Lane) (different bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	x := &list{lane: lanes[0], limit: pageLimit(lanes[0].Cache.Stats())}
	views, err := x.fetch(ctx, lanes)
	for i, l := range lanes {
		c, err := lane.Checked{Result: lane.CheckFailed}, err
		if err == nil {
			c, err = x.judge(ctx, &views[i])
		}
		if errors.Is(context.Cause(ctx), context.Canceled) { // the server stops
			return different
		}
		if err != nil {
			l.Log.Info("Self-check failed", "err", err, "elapsed", time.Since(began).Round(time.Millisecond))
		}
		c.Time, c.Seconds = time.Now(), time.Since(began).Seconds()
		l.NoteChecked(c)
		different = different || c.Result == lane.CheckDifferent
	}
	return different
}

// fetch requests the whole list, and takes the lanes' snapshots right after its first page.
func (x *list) fetch(ctx context.Context, lanes []*lane.Lane) (views []view, err error) {
	token, err := x.next(ctx, "")
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for _, l := range lanes {
		v := view{Lane: l}
		if l.Cache.WaitFor(soon, x.rv) == nil {
			v.snapshot, v.exact = l.Cache.SnapshotAt(x.rv)
		}
		if !v.exact {
			v.snapshot = l.Cache.Snapshot()
		}
		views = append(views, v)
	}
	for token != "" {
		if token, err = x.next(ctx, token); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// judge compares one lane with the list, and logs a difference.
func (x *list) judge(ctx context.Context, v *view) (c lane.Checked, err error) {
	c.Result = lane.CheckFailed
	all, first := x.firstDifferent(v.snapshot)
	if first >= 0 {
		// Perhaps the lane was not there yet. Or upstream sent another change with the list's
		// resourceVersion later, as when a lease expires.
		if err := x.meet(ctx, v); err != nil {
			return c, err
		}
		all, first = x.firstDifferent(v.snapshot)
	}
	if first >= 0 {
		named, err := x.differences(ctx, v.snapshot, first)
		if err != nil {
			return c, err
		}
		v.Log.Error("Self-check found objects that differ from kube-apiserver's", "resourceVersion", x.rv, "keys", named,
			"digest", all, "upstreamDigest", x.digest())
	}
	c.ResourceVersion, c.Digest, c.Objects = x.rv, all.String(), all.objects
	c.Result = lane.CheckEqual
	if first >= 0 {
		c.Result = lane.CheckDifferent
	}
	return c, nil
}

// meet makes the view one of the list's resourceVersion.
func (x *list) meet(ctx context.Context, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := v.Freshness.Reach(ctx, x.rv); err != nil {
		return fmt.Errorf("at %d, the list at %d: %w", v.Cache.Progress(), x.rv, err)
	}
	s, ok := v.Cache.SnapshotAt(x.rv)
	switch {
	case ok:
		v.snapshot, v.exact = s, true
	case !v.exact:
		return fmt.Errorf("the history does not reach back to the list's %d", x.rv)
	}
	return nil
}

// digest returns the digest of all pages.
func (x *list) digest() (all digest) {
	for _, p := range x.pages {
		all.add(p.digest)
	}
	return all
}

// mostNamed is how many of the differences are named.
const mostNamed = 5

// listed is what upstream lists of one object.
type listed struct {
	key, uid string
	rv       uint64
}

// differences says which objects of page i differ from the snapshot's, and how: the first of them,
// in the order of their keys. It requests the page again. It returns an error if upstream does not
// answer as it did before.
func (x *list) differences(ctx context.Context, s fanout.Snapshot, i int) (named []string, err error) {
	after, upTo := "", ""
	if i > 0 {
		after = x.pages[i-1].last
	}
	if i < len(x.pages)-1 {
		upTo = x.pages[i].last
	}
	var there []listed
	again, _, err := x.read(ctx, x.pages[i].token, after, func(o listed) { there = append(there, o) })
	if err != nil {
		return nil, err
	}
	if again != x.pages[i] {
		return nil, errors.New("upstream listed other objects at the second time")
	}
	return differing(s, after, upTo, there), nil
}

// differing names the first objects of a snapshot that differ from those there, which upstream lists.
// It looks at the keys behind after and up to upTo; "" is no bound. Both sides are in the order of
// their keys.
func differing(s fanout.Snapshot, after, upTo string, there []listed) (named []string) {
	name := func(key, how string) {
		if len(named) < mostNamed {
			named = append(named, key+": "+how)
		}
	}
	for o := range s.All {
		if upTo != "" && o.Key > upTo {
			break
		}
		if o.Key <= after {
			continue
		}
		for ; len(there) > 0 && there[0].key < o.Key; there = there[1:] {
			name(there[0].key, "missing")
		}
		switch {
		case len(there) == 0 || there[0].key > o.Key:
			name(o.Key, "kube-apiserver does not have it")
			continue
		case there[0].rv != o.ResourceVersion:
			name(o.Key, fmt.Sprintf("at %d, kube-apiserver at %d", o.ResourceVersion, there[0].rv))
		case there[0].uid != o.UID():
			name(o.Key, "another uid")
		}
		there = there[1:]
	}
	for _, l := range there {
		name(l.key, "missing")
	}
	return named
}
