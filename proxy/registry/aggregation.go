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
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Aggregation knows which API versions kube-apiserver does not serve itself: it sends their
// requests, with the user's name, to the server that their APIService names (spec.service). Such a
// server may answer each user differently: OpenShift lists the projects that a user may see, others
// compute what they answer. A lane is filled as the proxy, and an access review sees
// kube-apiserver's own rules only, so a client could be shown what that server would not show it.
// So these versions are passed through, unless the operator says that all users see the same there
// (--cache-aggregated-groups).
//
// The APIServices are followed for as long as there are lanes (see follower). When one changes:
//
//   - A version that becomes another server's: its lanes end at once, with their watches, and no
//     other begins. lanes.acquire compares under lanes.mu, so no request that was checked before
//     gets a lane afterwards.
//   - A version that becomes kube-apiserver's own: lanes begin after settleTime, because
//     kube-apiserver's informer may be behind our watch, and a lane that was filled by the other
//     server would stay with it.
//
// What fails is closed:
//
//   - A version without an APIService is passed through. Kube-apiserver would serve it itself, but
//     registers an APIService for each CustomResourceDefinition within a second. Should another
//     server be registered for a new group, kube-apiserver may know it before us. New watches wait
//     for the APIService, for up to handoverWait.
//   - While the APIServices are not known, or their upstream watch has been broken for staleAfter,
//     a lane begins for a built-in group only. Lanes that are there go on: an outage of
//     kube-apiserver takes no resource away.
//   - A CustomResourceDefinition proves nothing: an APIService with a service takes precedence over
//     it.
//   - A built-in group needs no APIService to be served, so that a proxy without the right to read
//     them is of use. Kube-apiserver registers those of its own groups at each start. Who puts
//     another server in the place of one takes it away from the cluster's own controllers; where
//     the APIServices are known, that counts too.
//   - Where upstream has no such API at all (404), there is no aggregation, and nothing is passed
//     through for it.
//
// What remains is a version that kube-apiserver has served itself and then another server does:
// until our watch brings the change, that of one event, clients are served what the lane had, and a
// lane that begins in that time is filled from the other server. Should our watch hang, the time is
// that of noticing it: 10 s for a dead connection, 150 s for one that hangs (see Upstream and
// watchdog).
type Aggregation struct {
	follower
	trusted []string // LaneOptions.CacheAggregatedGroups
	log     *slog.Logger

	// Guarded by follower.mu.
	services map[schema.GroupVersion]apiService // as of the last scan
	scanned  chan struct{}                      // closed and replaced when a scan brings something new
	absent   bool                               // upstream has no APIServices
	warned   bool                               // that they can't be read
}

// apiService is what matters of one APIService.
type apiService struct {
	remote bool // another server answers
	object *framing.Object
}

// Server says who answers the requests of an API version, behind kube-apiserver's address.
type Server int

const (
	byUnknown Server = iota // it can't be told
	ByItself                // kube-apiserver
	ByOthers                // an aggregated server
)

func NewAggregation(ls *lane.Lanes, discovery *upstream.Discovery, trusted []string, log *slog.Logger) *Aggregation {
	a := &Aggregation{trusted: trusted, log: log, scanned: make(chan struct{})}
	a.follower = follower{lanes: ls, discovery: discovery, resource: upstream.APIServicesResource, scan: a.scanLocked,
		failed: a.unknownLocked, needed: ls.InUse, forget: a.forgetServices}
	return a
}

// trusts reports whether the operator says that all users see the same of a version.
func (a *Aggregation) trusts(gv schema.GroupVersion) bool {
	return slices.Contains(a.trusted, gv.Group) || slices.Contains(a.trusted, gv.String())
}

// handoverWait is how long a new watch waits for an API version that is just being registered, or
// taken back.
const handoverWait = lane.SettleTime + time.Second

// Served returns who serves an API version; one that the operator trusts counts as kube-apiserver's
// own. It waits until the APIServices are known, if it matters. wait is whether the caller would
// rather wait longer for a version that is changing hands, too.
func (a *Aggregation) Served(ctx context.Context, gv schema.GroupVersion, wait bool) Server {
	if a.trusts(gv) {
		return ByItself
	}
	if upstream.BuiltIn(gv.Group) {
		a.begin()
	} else {
		a.await(ctx)
	}
	by, changing, scanned := a.look(gv)
	if !changing || !wait {
		return by
	}
	ctx, cancel := context.WithTimeout(ctx, handoverWait)
	defer cancel()
	for changing {
		request.Waits(ctx)
		select {
		case <-scanned:
		case <-time.After(lane.SettleTime / 10):
		case <-ctx.Done():
			return by
		}
		by, changing, scanned = a.look(gv)
	}
	return by
}

// look returns who serves a version as far as it is known, and whether that is about to be known
// better; scanned is closed when there is more to know.
func (a *Aggregation) look(gv schema.GroupVersion) (by Server, changing bool, scanned <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	service, registered := a.services[gv]
	switch {
	case service.remote:
		return ByOthers, false, a.scanned
	case a.lanes.Outsourced(gv):
		return byUnknown, true, a.scanned
	case a.absent || upstream.BuiltIn(gv.Group), registered && a.currentLocked():
		return ByItself, false, a.scanned
	case registered && a.lanes.StartedVersion(gv): // what is known may be old
		return ByItself, false, a.scanned
	}
	return byUnknown, a.currentLocked(), a.scanned
}

// scanLocked looks for APIServices that have changed, and stops the lanes of versions that are
// another server's now.
func (a *Aggregation) scanLocked(snapshot fanout.Snapshot) {
	a.absent, a.warned = false, false
	services := make(map[schema.GroupVersion]apiService, len(a.services))
	remote := make(map[schema.GroupVersion]bool)
	same := len(a.services) == snapshot.Len()
	for o := range snapshot.All {
		gv, service := a.read(o)
		services[gv] = service
		same = same && a.services[gv] == service
		if service.remote && !a.trusts(gv) {
			remote[gv] = true
		}
	}
	a.services = services
	taken, back := a.lanes.Outsource(remote)
	for _, gv := range taken {
		a.log.Info("Passed API version through, an aggregated API server answers for it", "groupVersion", gv.String())
		a.discovery.Forget(gv)
	}
	for _, gv := range back {
		a.log.Info("Kube-apiserver answers for an API version again that an aggregated API server did", "groupVersion", gv.String())
		a.discovery.Forget(gv)
	}
	if !same {
		close(a.scanned)
		a.scanned = make(chan struct{})
	}
}

// read reads an APIService. One that can't be read counts as another server's.
func (a *Aggregation) read(o *framing.Object) (schema.GroupVersion, apiService) {
	var service struct {
		Spec struct {
			Group   string          `json:"group"`
			Version string          `json:"version"`
			Service json.RawMessage `json:"service"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Bytes(), &service); err != nil {
		a.log.Warn("Could not read APIService", "resource", o.Name, "err", err)
		service.Spec.Service = json.RawMessage("{}")
	}
	remote := len(service.Spec.Service) > 0 && string(service.Spec.Service) != "null"
	return schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}, apiService{remote, o}
}

// unknownLocked notes that the APIServices can't be had.
func (a *Aggregation) unknownLocked(err error, retryIn time.Duration) {
	if a.absent = errors.Is(err, upstream.ErrNotFound); a.absent {
		a.services = nil
		a.log.Info("Upstream has no APIServices, so it serves all that it has itself")
		return
	}
	if !a.warned {
		a.log.Warn("Passed all but built-in API groups through, watchfan could not list and watch apiservices.apiregistration.k8s.io",
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
	a.services = nil
	return true
}

// The lanes' part: which versions another server answers.
