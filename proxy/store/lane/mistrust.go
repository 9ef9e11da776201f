package lane

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// mistrustFor is how long a resource is passed through whose cache could not be repaired. It is long
// enough to be noticed, and short enough that nobody has to restart the replica.
const mistrustFor = time.Hour

// Mistrusted is a resource that is passed through because its cache was wrong, as /debug/lanes shows it.
type Mistrusted struct {
	Resource string    `json:"resource"` // apps/v1/deployments
	Why      string    `json:"why"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
}

// Mistrust stops all lanes of a resource, and passes the resource through for an hour, because its
// cache differs from kube-apiserver in a way that another list does not repair. Its watches end with
// 410, because their clients may know what the cache had. why is for the log and for pages, and has
// nothing of an object. It may be called from any goroutine.
func (ls *Lanes) Mistrust(gvr schema.GroupVersionResource, why string) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if now.Before(ls.mistrusted[gvr].Until) {
		return
	}
	m := Mistrusted{Resource: request.ResourceText(gvr), Why: why, Since: now, Until: now.Add(mistrustFor)}
	ls.mistrusted[gvr] = m
	for _, l := range ls.byKey {
		if l.GVR == gvr {
			l.mistrusted.Store(true)
			ls.stopLocked(l)
		}
	}
	ls.cfg.Guard.Log.Error("Stopped serving a resource from its cache, its requests are passed through", "resource", m.Resource,
		"reason", why, "retryIn", mistrustFor)
}

// Mistrusted returns the resources that are passed through now, ordered by name.
func (ls *Lanes) Mistrusted() []Mistrusted {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := slices.SortedFunc(maps.Values(ls.mistrusted), func(a, b Mistrusted) int { return cmp.Compare(a.Resource, b.Resource) })
	now := time.Now()
	return slices.DeleteFunc(all, func(m Mistrusted) bool { return !now.Before(m.Until) })
}

// Expired ends a watch with 410 for a reason: its client has to list again.
func (l *Lane) Expired(reason fanout.Reason) fanout.Ending {
	rv := l.Cache.Progress()
	return fanout.Ending{Reason: reason, Last: apistatus.ErrorFrame(l.Encoding, apistatus.Expired(rv, rv+1))}
}
