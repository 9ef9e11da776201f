package observe

import (
	"cmp"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/view"
)

// terms say how each client reads. They are immutable.
type terms struct {
	rules Rules
	named map[string]string     // the views that namespaces name, by namespace
	views map[string]*view.View // that there are, by name
}

// first returns the rule about the reads of a client, or one that has them served. It has the view that the
// client's namespace names.
func (t *terms) first(c Client) Rule {
	for i := range t.rules {
		if !t.rules[i].fits(c) {
			continue
		}
		found := t.rules[i]
		if found.ViewOf != "" {
			found.View = view.Name(t.named[c.Namespace()])
		}
		if found.ViewOf == "" || t.views[string(found.View)] != nil {
			return found
		}
	}
	return Rule{}
}

// mode returns the mode of the reads of a client.
func (t *terms) mode(c Client) Mode { return cmp.Or(t.first(c).Mode, Serve) }

// view returns the view in which a client reads; nil for none.
func (t *terms) view(c Client) *view.View {
	if c.In != "" {
		return t.views[c.In]
	}
	return t.views[string(t.first(c).View)]
}

// mayView reports whether any rule might have a client read in a view.
func (t *terms) mayView(c Client) bool {
	return slices.ContainsFunc(t.rules, func(r Rule) bool { return r.viewed() && r.fits(c) })
}

// viewed reports whether any rule has clients read in a view.
func (t *terms) viewed() bool {
	return slices.ContainsFunc(t.rules, func(r Rule) bool { return r.viewed() })
}

// ruling is the terms that are in force, and those before.
type ruling struct {
	terms
	past      []*past // the latest last, at most mostPast
	forgotten *past   // those that are not known any more: see behind; nil for none
	serial    int     // how many terms were in force before
}

// list is the first of a client: as of a resourceVersion or later, in a view, under the ruling of a serial. none says
// that the client has been told more in another form since any that it had asked for.
type list struct {
	rv     uint64
	view   *view.View
	serial int
	none   bool
}

// mostListed bounds the lists and the clients that were told late. Beyond it, clients have to list more often, or
// may be told late unnoticed.
const mostListed = 1 << 16

// past is terms that were in force. Clients were told of each resource up to a resourceVersion at most while
// they were. until is nil before that is known, and lacks a resource that was not followed.
type past struct {
	terms
	until atomic.Pointer[map[schema.GroupResource]uint64]
}

// mostPast bounds the past terms that are known.
const mostPast = 64

// covers reports whether a client may have been told of a resource up to rv while the terms were in force, or
// before.
func (p *past) covers(of schema.GroupResource, rv uint64) bool {
	until := p.until.Load()
	return until == nil || rv <= (*until)[of]
}

// next returns the ruling after g, and what g has become.
func (g *ruling) next(t terms) (next *ruling, was *past) {
	was = &past{terms: g.terms}
	next = &ruling{terms: t, past: append(slices.Clone(g.past), was), forgotten: g.forgotten, serial: g.serial + 1}
	if len(next.past) > mostPast {
		next.forgotten, next.past = next.past[0].behind(g.forgotten), next.past[1:]
	}
	return next, was
}

// behind returns p together with those before, which may be nil: with all rules that have had clients read in views, and
// up to where clients were told of each resource while any of them was in force.
func (p *past) behind(before *past) *past {
	if before == nil {
		return p
	}
	both := &past{terms: terms{rules: slices.Clone(before.rules)}}
	for _, r := range p.rules {
		if r.viewed() && !slices.ContainsFunc(both.rules, func(known Rule) bool { return reflect.DeepEqual(known, r) }) {
			both.rules = append(both.rules, r)
		}
	}
	until, earlier := p.until.Load(), before.until.Load()
	if until != nil && earlier != nil { // which may have a resource that has not been followed since
		all := make(map[schema.GroupResource]uint64, len(*earlier))
		maps.Copy(all, *earlier)
		for of, rv := range *until {
			all[of] = max(all[of], rv)
		}
		until = &all
	}
	both.until.Store(until)
	return both
}

// mayKnowOther reports whether a client that knows its resource as of rv may have been told so in another form
// than that of its view now.
func (g *ruling) mayKnowOther(c Client, now *view.View, rv uint64) bool {
	other := func(p *past) bool { return p.covers(c.Resource, rv) && !now.SameFor(p.view(c), c.Resource) }
	if slices.ContainsFunc(g.past, other) {
		return true
	}
	return g.forgotten != nil && g.forgotten.covers(c.Resource, rv) && (now != nil || g.mayView(c) || g.forgotten.mayView(c))
}

// counts reports whether what a client was told from a list on is all of the form of view v, in which it reads now.
func (g *ruling) counts(l list, c Client, v *view.View) bool {
	first := len(g.past) - (g.serial - l.serial) // of the terms since
	other := func(p *past) bool { return !v.SameFor(p.view(c), c.Resource) }
	return first >= 0 && v.SameFor(l.view, c.Resource) && !slices.ContainsFunc(g.past[first:], other)
}

// readBy identifies a client and what it reads of its resource.
type readBy struct {
	Client
	scope string
}

func (o *Observer) who(c Client, scope string) uint64 {
	return maphash.Comparable(o.seed, readBy{c, scope})
}

// toldOther reports whether kube-apiserver has told a client more in another form than that of its view now.
func (o *Observer) toldOther(c Client, now *view.View) bool {
	told, late := o.late.Get(o.who(c, ""))
	return late && (told.mixed || !now.SameFor(told.view, c.Resource))
}

// mayKnowOther is ruling.mayKnowOther, of a client that kube-apiserver may have told more too.
func (o *Observer) mayKnowOther(g *ruling, c Client, now *view.View, rv uint64) bool {
	return o.toldOther(c, now) || g.mayKnowOther(c, now, rv)
}

// list returns the list of a client, if it counts for view v, in which the client reads now.
func (o *Observer) list(g *ruling, c Client, v *view.View, scope string) (l list, ok bool) {
	l, ok = o.listed.Get(o.who(c, scope))
	return l, ok && !l.none && g.counts(l, c, v)
}

// Outdated reports whether what a client, which reads in view v, knows as of rv may be of another form than it
// would be told from there on. Then it has to list. scope is what it reads of its resource.
func (o *Observer) Outdated(c Client, v *view.View, scope string, rv uint64) bool {
	g := o.ruling.Load()
	if now := g.view(c); now != v {
		return true // the rules have just changed
	}
	first, ok := o.list(g, c, v, scope)
	return o.mayKnowOther(g, c, v, rv) && !(ok && first.rv <= rv)
}

// List notes that a client is sent a list as of rv or later in view v, for which it asked at a time. It reports whether
// that is its view still.
func (o *Observer) List(c Client, v *view.View, scope string, rv uint64, asked time.Time) bool {
	g := o.ruling.Load()
	if g.view(c) != v {
		return false
	}
	first, ok := o.list(g, c, v, scope)
	if known := ok && first.rv <= rv; !known && o.mayKnowOther(g, c, v, rv) {
		o.listed.Put(o.who(c, scope), list{rv: rv, view: v, serial: g.serial}, asked, forever)
	}
	return true
}
