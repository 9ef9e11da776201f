package registry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Aggregation knows which API versions kube-apiserver does not serve itself. It sends their
// requests, with the user's name, to the server that their APIService names (spec.service). Such a
// server may answer each user differently: OpenShift lists the projects that the user may see,
// other servers compute their answers. But a lane is filled in the proxy's name, and an access
// review checks kube-apiserver's own rules only. So a client of a lane could see objects that the
// server would not show to it. Therefore these versions are passed through, unless the operator
// says that all users see the same there (--cache-aggregated-groups).
//
// The APIServices are followed for as long as there are lanes (see follower). When one changes:
//
//   - Another server takes a version over: its lanes end at once, with their watches, and no other
//     begins. lane.Lanes.Acquire compares under a lock, so no request that was checked before gets
//     a lane afterwards.
//   - Kube-apiserver takes a version back: its lanes begin after SettleTime. Kube-apiserver's
//     informer may be behind our watch, and a lane that the other server had filled would keep
//     those objects.
//
// In any doubt, requests are passed through:
//
//   - A version without an APIService is passed through. Kube-apiserver would serve it itself, but
//     it registers an APIService for each CustomResourceDefinition within a second. If another
//     server is registered for a new group, kube-apiserver may know it before us. New watches wait
//     for the APIService, for up to handoverWait.
//   - While the APIServices are not known, or their upstream watch has been broken for staleAfter,
//     a lane begins for a built-in group only. Existing lanes go on: an outage of kube-apiserver
//     takes no resource away.
//   - A CustomResourceDefinition proves nothing: an APIService with a service takes precedence over
//     it.
//   - A built-in group is served without an APIService. So a proxy that may not read APIServices is
//     still useful. Kube-apiserver registers the APIServices of its own groups at each start. An
//     operator who puts another server in the place of one takes the group away from the cluster's
//     own controllers. If the APIServices are known, such a replacement counts too.
//   - If upstream has no APIServices at all (404), there is no aggregation, and nothing is passed
//     through because of it, also while upstream does not answer later.
//
// One gap remains, when another server takes over a version that kube-apiserver has served itself.
// Until our watch brings the change, clients get what the lane had, and a lane that begins in that
// time is filled from the other server.
type Aggregation struct {
	follower
	trusted []string // lane.Options.CacheAggregatedGroups
	log     *slog.Logger

	// Guarded by follower.mu.
	remote map[schema.GroupVersion]bool // by APIService, as of the last scan: whether another server answers
	absent bool                         // upstream has no APIServices
	warned bool                         // it has been logged that they cannot be read
}

// Server says which server answers the requests of an API version, at kube-apiserver's address.
type Server int

const (
	byUnknown Server = iota // not known
	ByItself                // kube-apiserver
	ByOthers                // an aggregated server
)

// NewAggregation returns an Aggregation that follows nothing before the first question. trusted are
// the groups and versions of which the operator says that all users see the same.
func NewAggregation(ls *lane.Lanes, discovery *upstream.Discovery, trusted []string, log *slog.Logger) *Aggregation {
	a := &Aggregation{trusted: trusted, log: log}
	a.follower = follower{lanes: ls, discovery: discovery, resource: upstream.APIServicesResource, scan: a.scanLocked,
		failed: a.unknownLocked, needed: ls.InUse, forget: a.forgetServices}
	return a
}

// trusts reports whether the operator says that all users see the same in a version.
func (a *Aggregation) trusts(gv schema.GroupVersion) bool {
	return slices.Contains(a.trusted, gv.Group) || slices.Contains(a.trusted, gv.String())
}

const (
	// handoverWait is how long a new watch waits for an API version that is being registered or taken
	// back, and handoverTick how often it looks.
	handoverWait = lane.SettleTime + time.Second
	handoverTick = 100 * time.Millisecond
)

// Served returns which server answers for an API version. A version that the operator trusts counts
// as kube-apiserver's own. Served waits until the APIServices are known, unless the group is
// built-in. If wait is true, it also waits for a version that is changing hands.
func (a *Aggregation) Served(ctx context.Context, gv schema.GroupVersion, wait bool) Server {
	if a.trusts(gv) {
		return ByItself
	}
	if upstream.BuiltIn(gv.Group) {
		a.begin()
	} else {
		a.await(ctx)
	}
	by, changing := a.look(gv)
	if !changing || !wait {
		return by
	}
	ctx, cancel := context.WithTimeout(ctx, handoverWait)
	defer cancel()
	exchange.Waits(ctx)
	for changing && exchange.Sleep(ctx, handoverTick) {
		by, changing = a.look(gv)
	}
	return by
}

// Own reports whether kube-apiserver is known to answer for an API version itself. It does not wait.
func (a *Aggregation) Own(gv schema.GroupVersion) bool {
	by, _ := a.look(gv)
	return by == ByItself
}

// look returns which server answers for a version, as far as it is known. changing reports whether
// more may be known soon.
func (a *Aggregation) look(gv schema.GroupVersion) (by Server, changing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	remote, registered := a.remote[gv]
	switch {
	case remote:
		return ByOthers, false
	case a.lanes.Outsourced(gv):
		return byUnknown, true
	case a.absent || upstream.BuiltIn(gv.Group),
		registered && (a.currentLocked() || a.lanes.StartedVersion(gv)): // what is known of a lane's version may be old
		return ByItself, false
	}
	return byUnknown, a.currentLocked()
}

// scanLocked looks for APIServices that have changed, and stops the lanes of versions that another
// server has taken over.
func (a *Aggregation) scanLocked(snapshot fanout.Snapshot) {
	a.absent, a.warned = false, false
	a.remote = make(map[schema.GroupVersion]bool, len(a.remote))
	untrusted := make(map[schema.GroupVersion]bool)
	for o := range snapshot.All {
		gv, remote := a.read(o)
		a.remote[gv] = remote
		if remote && !a.trusts(gv) {
			untrusted[gv] = true
		}
	}
	taken, back := a.lanes.Outsource(untrusted)
	for _, gv := range taken {
		a.log.Info("Passed API version through, an aggregated API server answers for it", "groupVersion", gv.String())
	}
	for _, gv := range back {
		a.log.Info("Kube-apiserver answers again for an API version that an aggregated API server had",
			"groupVersion", gv.String())
	}
	for _, gv := range append(taken, back...) {
		a.discovery.Forget(gv)
	}
}

// read reads an APIService. One that cannot be read counts as another server's.
func (a *Aggregation) read(o *framing.Object) (gv schema.GroupVersion, remote bool) {
	var service struct {
		Spec struct {
			Group   string `json:"group"`
			Version string `json:"version"`
			Service any    `json:"service"`
		} `json:"spec"`
	}
	err := json.Unmarshal(o.Bytes(), &service)
	if err != nil {
		a.log.Warn("Could not read APIService", "resource", o.Name, "err", err)
	}
	return schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}, err != nil || service.Spec.Service != nil
}

// unknownLocked notes that the APIServices cannot be followed.
func (a *Aggregation) unknownLocked(err error, retryIn time.Duration) {
	was := a.absent
	// Discovery knows nothing of a question that was given up.
	unanswered := errors.Is(err, context.DeadlineExceeded) || a.discovery.Unclear(a.resource)
	if a.absent = errors.Is(err, upstream.ErrNotFound) || was && unanswered; a.absent {
		a.remote = nil
		if !was {
			a.log.Info("Upstream has no APIServices, so no other server answers for it")
		}
		return
	}
	if !a.warned {
		a.log.Warn(
			"Passed all but built-in API groups through, could not list and watch apiservices.apiregistration.k8s.io",
			"err", err, "retryIn", retryIn)
	}
	a.warned = true
}

// forgetServices forgets all APIServices, unless there are lanes.
func (a *Aggregation) forgetServices() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lanes.InUse() {
		return false
	}
	a.remote = nil
	return true
}
