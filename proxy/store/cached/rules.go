package cached

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// RuledView returns the view in which a rule has the client read; nil for none. It waits until the namespaces
// are known, if one of them may name it.
func (c *Reads) RuledView(ctx context.Context, x *exchange.Exchange, id auth.Identity, req *request.Request) *view.View {
	if !c.Observer.NamesViews() || req.Seed != "" {
		return nil
	}
	client := client(x, id, req)
	if client.Namespace() != "" && c.Observer.AsksNamespaces() {
		c.namespaces.Known(ctx, false, 0)
	}
	return c.Observer.View(client)
}

// scopeText returns what r reads of its resource.
func (r *read) scopeText() string {
	return fmt.Sprintf("%q %q %q %q", r.NamespacePrefix(), r.Name, r.RawLabels, r.RawFields)
}

// outdated reports whether r resumes from what its client may know in another form than that of its view now, or
// is the next page of it.
func (c *Reads) outdated(x *exchange.Exchange, r *read) bool {
	known := r.version()
	switch {
	case r.Verb == "list" && r.ContinueToken != "":
		known = r.Page.ResourceVersion
	case !r.Resumes():
		return false
	}
	changed := c.Observer.Changed() || r.View != nil // which may be new, and not counted yet
	return changed && c.Observer.Outdated(clientOf(x, r), r.View, r.scopeText(), known)
}

const justChanged = "the view of this client has just changed"

// mayList reports whether r may be sent a list, or initial events, as of rv or later: its client's view is still
// the same. A sibling replica has none.
func (c *Reads) mayList(x *exchange.Exchange, r *read, rv uint64) bool {
	return r.Seed != "" || !c.Observer.Changed() || c.Observer.List(clientOf(x, r), r.View, r.scopeText(), rv, r.arrived)
}

const beforeChange = "The provided resource version is from before this client's view changed: list again."

// gone refuses a read of a resourceVersion that can't be told any more.
func gone(message string) request.Outcome {
	return request.Refuse(apistatus.Failure(http.StatusGone, metav1.StatusReasonExpired, message))
}

// moved ends a watch whose client is to come back because of a rule.
var moved = fanout.Ending{Reason: fanout.Moved, Graceful: true}

// ruledAway returns how an open watch ends whose client reads in another way by the rules: if they keep
// it from the caches, and it can resume elsewhere, or if they name another view. nil is not at all, as for a
// sibling replica.
func (c *Reads) ruledAway(w *watchers.Watcher) *fanout.Ending {
	scope := w.Scope.Value()
	if scope.Seed || scope.View != "" && !scope.Ruled || !c.Observer.Ruled() && !scope.Ruled {
		return nil
	}
	client := observe.Client{
		User: w.User.Value(), UserAgent: w.UserAgent.Value(), Slot: w.Slot, Resource: w.Lane.GVR.GroupResource()}
	switch {
	case c.Observer.View(client).Name() != scope.View:
		return new(w.Lane.Expired(fanout.Expired)) // what the client holds is of another form
	case w.Sub.Bookmarks() && scope.View == "" && scope.Shard == "" && c.Observer.Mode(client) != observe.Serve:
		return &moved
	}
	return nil
}

// ReplaceViews makes the views that there are now count, together with rules, which name them: it ends the watches
// in those that have been replaced or are gone. Those whose form is the same end gracefully, and their clients
// resume.
func (c *Reads) ReplaceViews(replaced map[*view.View]*view.View, rules observe.Rules) {
	open := 0
	ends := c.move(func(told observe.Progress) []func() {
		return c.Observer.SetRules(rules, func() map[schema.GroupResource]uint64 {
			open = c.endReplaced(replaced)
			return told()
		})
	})
	c.spreadEnds(ends)
	c.log.Info("Replaced views", "clients", len(rules), "watches", open+len(ends))
}

// endReplaced ends the open watches in views that have been replaced or are gone, and returns how many.
func (c *Reads) endReplaced(replaced map[*view.View]*view.View) int {
	by := make(map[string][2]*view.View)
	for was, now := range replaced {
		by[was.Name()] = [2]*view.View{was, now}
	}
	open := slices.DeleteFunc(c.Watchers.All(), func(w *watchers.Watcher) bool { return by[w.Scope.Value().View][0] == nil })
	for _, w := range open {
		end, v := w.Lane.Expired(fanout.Expired), by[w.Scope.Value().View]
		if v[1] != nil && v[0].SameFor(v[1], w.Lane.GVR.GroupResource()) {
			end = moved
		}
		w.Sub.End(end)
	}
	return len(open)
}

// movePace is the time between the ends of two open watches when rules have changed. 2,000 a second come
// back at kube-apiserver, or here.
const movePace = time.Second / 2000

// SetRules makes rules count: at once for new reads, and for open watches at a graceful end. It returns
// when these have been asked to end.
func (c *Reads) SetRules(rules observe.Rules) {
	ends := c.move(func(told observe.Progress) []func() { return c.Observer.SetRules(rules, told) })
	c.spreadEnds(ends)
	c.log.Info("Applied the rules of clients", "clients", len(rules), "watches", len(ends))
}

// setNamespaces makes the views that namespaces name count.
func (c *Reads) setNamespaces(all map[string]labels.Set) {
	changed := false
	ends := c.move(func(told observe.Progress) (ends []func()) {
		changed, ends = c.Observer.SetNamespaces(all, told)
		return ends
	})
	if !changed {
		return
	}
	if len(ends) > 0 {
		c.Lanes.Spawn(func(context.Context) { c.spreadEnds(ends) })
	}
	c.log.Info("Applied the views that namespaces name", "watches", len(ends))
}

// move changes by set how clients read. It ends the open watches whose view is another, and returns how to end
// those that move. What clients were told before is read last, because an open watch is told more until it ends.
func (c *Reads) move(set func(observe.Progress) []func()) (ends []func()) {
	var served []func()
	ends = set(func() map[schema.GroupResource]uint64 {
		for _, w := range c.Watchers.All() {
			switch e := c.ruledAway(w); {
			case e == nil:
			case e.Graceful:
				served = append(served, func() { w.Sub.End(*e) })
			default:
				w.Sub.End(*e)
			}
		}
		return c.Lanes.Progress()
	})
	return append(ends, served...)
}

// spreadEnds ends watches at movePace.
func (c *Reads) spreadEnds(ends []func()) {
	rand.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	spread(c.ctx, len(ends), time.Duration(len(ends))*movePace, func(i int) { ends[i]() })
}
