package cached

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// subscribe begins a subscription from a watch's parameters. It interprets them as kube-apiserver
// does (k8s.io/apiserver/pkg/storage/cacher/cacher.go and
// k8s.io/apimachinery/pkg/apis/meta/internalversion/defaults.go).
//
//	resourceVersion  sendInitialEvents  begins with
//	""               true, or unset     the state, proved to be current, and the end bookmark
//	"0"              true, or unset     the state as it is, and the end bookmark
//	N                true               the state, not older than N, and the end bookmark
//	N                false or unset     the events behind N
//	""               false              the events behind the current resourceVersion
//	"0"              false              the events from now on
//
// If upstream has no sendInitialEvents, or under the deprecated /watch/ prefix, a watch from "" or
// "0" begins with the state as it is, and has no end bookmark.
//
// A watch in Tables, as kubectl's, is served from a lane that keeps events only: see
// [fanout.NewEventsOnly]. What is shared of it is what kube-apiserver sends to a watcher beside it.
// Only ages may differ, by mostRowAge. request.Unserved has passed the other watches through: those
// that begin with rows, and those whose rows have no objects.
func (c *Reads) subscribe(ctx context.Context, r *read, want fanout.Request) (*fanout.Subscription, error) {
	req, l := r.Request, r.lane
	rv := r.version()
	sent, initial := req.SendInitialEvents != nil, req.SendInitialEvents != nil && *req.SendInitialEvents
	tables := r.form.Table != ""
	if tables {
		want.MaxAge = mostRowAge
	}
	switch {
	case sent && !l.WatchList():
		return nil, reflector.ErrNoWatchList
	case tables, rv != 0 && !initial:
		want.Start, want.ResourceVersion = fanout.FromVersion, rv
		return subscribeBehind(ctx, l, want)
	case !sent && (req.LegacyWatch || !l.WatchList()):
		want.Start = fanout.FromSnapshot
		return l.Cache.Subscribe(want)
	case !sent || initial:
		want.Start, want.EndBookmark = fanout.FromSnapshot, true
		if req.AllowWatchBookmarks && !l.Cache.HasBookmarks() {
			return nil, errNoBookmarks
		}
	default:
		want.Start = fanout.FromNow
	}
	return c.subscribeFresh(ctx, r, want, rv, req.ResourceVersion == "")
}

// mostRowAge is how long ago a row may have arrived that a watch begins with. So an age is a second
// too small at most.
const mostRowAge = time.Second

var errNoBookmarks = errors.New("upstream's bookmarks are not known yet")

// subscribeFresh subscribes to a state that is not older than rv. If current is true, the state is
// also not older than the request.
func (c *Reads) subscribeFresh(ctx context.Context, r *read, want fanout.Request, rv uint64, current bool) (*fanout.Subscription, error) {
	l := r.lane
	for {
		want.Proof = fanout.Proof{} // the last one may be about a state that the cache has left
		if current && !r.filledSince() || l.Cache.Progress() < rv {
			var err error
			r.pause()
			want.Proof, err = c.prove(ctx, r, rv)
			r.resume()
			if err != nil {
				return nil, err
			}
		}
		sub, err := l.Cache.Subscribe(want)
		if !errors.Is(err, fanout.ErrNotFresh) {
			return sub, err
		}
	}
}

// subscribeBehind subscribes to the events behind a resourceVersion. It fetches the history if the
// resourceVersion is older than the lane's, and the earlier versions of objects if the events depend
// on them.
func subscribeBehind(ctx context.Context, l *lane.Lane, want fanout.Request) (*fanout.Subscription, error) {
	sub, err := l.Cache.Subscribe(want)
	if errors.Is(err, fanout.ErrExpired) && !errors.Is(err, fanout.ErrRelistGap) {
		if err := l.Backfill(ctx, want.ResourceVersion); err != nil {
			return nil, err
		}
		sub, err = l.Cache.Subscribe(want)
	}
	if errors.Is(err, fanout.ErrPreviousUnknown) && l.ResolvePrevious(ctx) == nil {
		return l.Cache.Subscribe(want)
	}
	return sub, err
}

// watchTimeout returns how long a watch lasts: the client's timeoutSeconds, or a random time in
// [min-request-timeout, 2×min-request-timeout), as in kube-apiserver
// (k8s.io/apiserver/pkg/endpoints/handlers/get.go, ListResource).
func (c *Reads) watchTimeout(req *request.Request) time.Duration {
	if timeout := req.WatchTimeout(); timeout != 0 {
		const most = 10 * 365 * 24 * time.Hour // the end must not overflow
		return min(timeout, most)
	}
	least := c.Options.MinRequestTimeout
	return least + rand.N(max(least, 1))
}
