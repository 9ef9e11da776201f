package fanout

import (
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// search is one search for the objects of an instant that a filter selects, in key order. It looks
// at the fewest objects that it can: see the package comment, Indexes. Only one goroutine at a time
// uses a search.
type search struct {
	in      *instant
	filter  *Filter
	planned bool // what follows is set

	// At most one of these is set. Without any of them all objects are looked at.
	key   string          // the only key that the filter can select
	index *secondaryIndex // values are those that are looked up in it

	values  []string
	indexed uint64 // Cache.indexed when the indexes of in were last completed; 0 = never
}

// plan finds out what the search goes over. It takes no lock of the cache.
func (x *search) plan() {
	x.planned = true
	if x.key = x.in.onlyKey(x.filter); x.key == "" {
		x.choose()
	}
}

// onlyKey returns the only key that a filter can select; "" if it can select others. In cluster
// scope that is the name. All objects of a cache have the same scope.
func (in *instant) onlyKey(f *Filter) string {
	switch {
	case f.name == "":
		return ""
	case f.namespace != "":
		return f.namespace + "/" + f.name
	}
	if o, ok := in.tree.Min(); ok && o.Namespace == "" {
		return f.name
	}
	return ""
}

// searched returns what indexes may find the filter's objects by: what its group may be found by, or else
// the filter itself. What a selection of namespaces selects changes, and so has no index.
func (f *Filter) searched() []place {
	ps := f.places()
	if len(ps) == 0 && f.selective() && f.namespaces == nil {
		ps = []place{{attribute{slot: slotFilter, label: f.key}, []string{""}}}
	}
	return ps
}

// selective reports whether the filter may select only a part of its namespace.
func (f *Filter) selective() bool {
	return len(f.terms) > 0 || len(f.labels) > 0 || !f.part.whole() || f.Selects()
}

// mostCounted bounds the objects that are counted to find out which of several indexes is best.
const mostCounted = 4096

// choose chooses the index in which the search looks at the fewest objects. It counts the objects
// of all that may be used at the same time, up to a bound that doubles. So it takes about as long
// as the search in the best one.
func (x *search) choose() {
	usable := slices.DeleteFunc(x.filter.searched(), func(p place) bool { return x.in.index(p.attribute) == nil })
	if len(usable) == 0 {
		return
	}
	best := usable[0]
	for most := 16; len(usable) > 1 && most <= mostCounted; most *= 2 {
		least := most
		for _, p := range usable {
			if n := x.in.index(p.attribute).count(p.values, x.first(), most); n < least {
				best, least = p, n
			}
		}
		if least < most {
			break
		}
	}
	x.index, x.values = x.in.index(best.attribute), best.values
	x.index.use.note()
}

// first returns what the keys in the filter's namespace begin with.
func (x *search) first() string {
	if x.filter.namespace == "" {
		return ""
	}
	return x.filter.namespace + "/"
}

// prepare is called before each turn of a search. It makes use of an index that was built since the turn
// before.
func (x *search) prepare() {
	if !x.planned {
		x.plan()
	}
	if n := x.in.cache.indexed.Load(); n != x.indexed && x.key == "" && x.index == nil {
		x.indexed = n
		x.in = x.in.cache.completeIndexes(x.in, x.filter)
		x.choose()
	}
}

// ascend calls visit for each object that the filter might select, in key order, from the first key
// after the given one, until visit returns false. selected says whether the filter selects the
// object.
func (x *search) ascend(after string, visit func(o *framing.Object, selected bool) bool) {
	f, looked, missed := x.filter, 0, 0
	if f.nothing {
		return
	}
	if x.key != "" {
		if o, ok := x.in.tree.Get(&framing.Object{Key: x.key}); ok && x.key > after {
			visit(o, f.Match(o))
		}
		return
	}
	within := func(o *framing.Object) bool {
		if f.namespace != "" && o.Namespace != f.namespace {
			return false // past the namespace, whose keys are adjacent
		}
		if o.Key == after {
			return true
		}
		selected := f.Match(o)
		if looked++; !selected {
			missed++
		}
		return visit(o, selected)
	}
	switch from := max(after, x.first()); {
	case x.index != nil:
		x.index.ascend(x.values, from, within)
	case from == "":
		x.in.tree.Ascend(within)
	default:
		x.in.tree.AscendGreaterOrEqual(&framing.Object{Key: from}, within)
	}
	x.in.cache.noteMissed(&x.in.collection, f, looked, missed)
}

// searchBudget bounds the search for one subscription's prelude before the next subscription's
// turn. It is spent when enough has been looked at, or when enough time has passed, whichever comes
// first.
type searchBudget struct {
	work, looked int
	until        time.Time
}

const (
	// maxSearchWork bounds the objects or changes that are looked at, each counted with its
	// filter's cost: 20 to 50 ns each, 1 ms at worst.
	maxSearchWork = 20_000
	// searchTime bounds the time. The clock is read once for every searchCheckEvery objects or
	// changes.
	searchTime       = time.Millisecond
	searchCheckEvery = 64
)

func newSearchBudget() searchBudget { return searchBudget{until: time.Now().Add(searchTime)} }

// spend counts an object or change that was looked at, with its filter's cost.
func (b *searchBudget) spend(cost int) {
	b.looked++
	b.work += 1 + cost
}

// spent reports whether the budget is used up. It never is before something has been looked at.
func (b *searchBudget) spent() bool {
	if b.work >= maxSearchWork {
		return true
	}
	if b.looked < searchCheckEvery {
		return false
	}
	b.looked = 0
	if !time.Now().Before(b.until) {
		b.work = maxSearchWork
	}
	return b.work >= maxSearchWork
}
