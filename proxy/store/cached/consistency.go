package cached

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/fresh"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// state returns the collection as of the resourceVersion that a get or list asks for
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resourceversion-in-metadata).
//
//	resourceVersion        is answered with
//	""                     a state at least as new as the request
//	"0"                    the state as it is
//	N                      a state not older than N
//	N, exact               the state as of N: resourceVersionMatch=Exact, or a limit and no match
//	"" or "0", continue    the state as of the token
//
// o says what becomes of r if the state can't be provided, or proved to be fresh, in time.
func (c *Reads) state(r *read) (s fanout.Snapshot, o request.Outcome) {
	if r.ContinueToken != "" {
		return r.snapshotAt(r.Page.ResourceVersion)
	}
	rv := r.version()
	ctx, cancel := context.WithTimeout(exchange.WithArrival(c.ctx, r.conn), c.proofWait(r))
	defer cancel()
	if !r.Exact() || r.ResourceVersion == "" {
		return c.notOlderThan(ctx, r, rv)
	}
	if s, o = r.snapshotAt(rv); o.Why() == "" {
		return s, o
	}
	if s, o = c.notOlderThan(ctx, r, rv); !o.Open() || s.ResourceVersion == rv {
		return s, o
	}
	return r.snapshotAt(rv)
}

// proofWait returns how long r waits for a proof. After the first list of a collection, many reads
// wait for their proof at the same time, and for the processors. They wait longer.
func (c *Reads) proofWait(r *read) time.Duration {
	if r.waited {
		return max(c.Lane.FreshnessTimeout, lane.Wait)
	}
	return c.Lane.FreshnessTimeout
}

// snapshotAt returns the collection as of rv. The time is proportional to the changes since rv, for the first of
// the pages of a list.
func (r *read) snapshotAt(rv uint64) (s fanout.Snapshot, o request.Outcome) {
	if !r.seat.Begin() {
		return s, request.Refuse(r.seat.Refused)
	}
	defer r.seat.Give()
	s, ok := r.lane.Cache.SnapshotAt(rv)
	if !ok || r.filter.Outdated(rv) {
		o = request.PassThrough(request.History)
	}
	return s, o
}

// filledSince reports whether the lane was filled by a list newer than the request.
func (r *read) filledSince() bool { return r.lane.FilledAfter(r.arrived) }

// notOlderThan returns a state that is not older than rv, nor than a state of the collection that
// an earlier read was shown. A read without a resourceVersion gets a state at least as new as itself.
func (c *Reads) notOlderThan(ctx context.Context, r *read, rv uint64) (s fanout.Snapshot, o request.Outcome) {
	if r.ResourceVersion == "" && r.filledSince() {
		return r.lane.Cache.Snapshot(), o
	}
	if r.ResourceVersion != "" {
		if s = r.lane.Cache.SnapshotShown(); s.ResourceVersion >= rv {
			return s, o
		}
	}
	for {
		proof, err := c.prove(ctx, r, rv)
		if errors.Is(err, fresh.ErrAhead) {
			c.passing.passGets(r.GVR, slowFor)
			return s, request.PassThrough(request.Cheaper)
		}
		if err != nil {
			r.lane.Log.Debug("Passed read through", "err", err)
			return s, request.PassThrough(request.Freshness)
		}
		if s, err = r.lane.Cache.SnapshotProved(proof); err == nil { // otherwise the proof is of a state that is gone
			return s, o
		}
	}
}

// prove proves that the cache is as new as now, and not older than rv.
func (c *Reads) prove(ctx context.Context, r *read, rv uint64) (fanout.Proof, error) {
	l := r.lane
	if l.Collection.Uncached() {
		return fanout.Proof{}, errUnproven
	}
	var proof fanout.Proof
	var err error
	switch timeout := c.Lane.FreshnessTimeout; {
	case r.Verb != "watch" && !r.eager():
		proof, err = l.Freshness.ProveLater(ctx, timeout)
	case r.Verb == "get" && r.current() && r.View == nil:
		proof, err = l.Freshness.ProveEasily(ctx, timeout)
	default:
		proof, err = l.Freshness.Prove(ctx, timeout, r.need())
	}
	if err == nil && proof.AsOf < rv {
		err = errUnproven
	}
	return proof, err
}

// need returns what a list or watch needs a proof of.
func (r *read) need() (n fresh.Need) {
	switch {
	case r.Limit > 0:
		n.Little = r.Limit < int64(r.lane.Cache.Stats().Objects)
	case r.base != nil && (r.namespace != "" || r.RawLabels != "" || r.RawFields != ""):
		n.Filter = r.base
		n.Selection = reflector.Selection{Namespace: r.namespace, Labels: r.Labels.String(), Fields: r.Fields.String()}
	}
	return n
}

var errUnproven = errors.New("not known to be as new as asked")

// addState says in a response how new the cache is. Age is a cache's standard field (RFC 9111, section 5.1).
func (r *read) addState(h *exchange.Header) {
	age := time.Duration(fanout.MonotonicNow() - r.lane.Cache.Told())
	h.Add("Age", strconv.Itoa(int(age.Seconds())))
	h.Add("X-Kubernetes-Resource-Version", strconv.FormatUint(r.lane.Cache.Progress(), 10))
}

// version returns the resourceVersion that r asks for, 0 for none. request.Parse has let no other text pass.
func (r *read) version() uint64 {
	rv, _ := strconv.ParseUint(r.ResourceVersion, 10, 64)
	return rv
}
