package chaos_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// cursor is the position of a client in the history. It says of each event whether it is the next
// one.
//
// The rule has one exception. If watchfan's log says that a lane listed again as of R, a client of
// that lane may receive the differences between what it knows and the state as of R instead of each
// change up to R: all of them and nothing else. Removals come first, with a resourceVersion up to
// which the client's knowledge was true, and then new versions.
type cursor struct {
	oracle *oracle
	form   form
	filter filter
	leaps  bool // the client's server is watchfan, which may list again

	relists *relists // of that server

	last uint64 // the client has received everything up to it
	leap *leap  // whose differences the client is receiving; nil if none

	explained uint64 // the list that explains the last event that was taken; 0 if none was needed
}

// leap is a list whose differences a client receives.
type leap struct {
	to       uint64
	from     uint64 // resourceVersion of removals; 0 until one comes
	next     uint64 // the client's knowledge is true until before it
	removals []told
	versions []told
}

func (l *leap) String() string {
	return fmt.Sprintf("%v and %v of a list as of %d", l.removals, l.versions, l.to)
}

// oracle checks what all clients receive.
type oracle struct {
	truth *truth

	mu     sync.Mutex
	bytes  map[version]sent
	counts tally
}

// version is one version of an object in one form, and the resourceVersion that it is sent with.
// For a removed object, or one that is no longer selected, that is another one: the change's, or
// that of the list that showed the removal.
type version struct {
	form, resource, key string
	of, as              uint64
}

// sent is how a version was sent, and by whom.
type sent struct {
	bytes, less          digest // with managedFields and without; zero if nobody has been sent it
	straight, ours, lean bool   // by kube-apiserver, by watchfan, and by watchfan without managedFields
}

func newOracle(tr *truth) *oracle { return &oracle{truth: tr, bytes: make(map[version]sent)} }

// begin says that the client knows the state as of rv.
func (c *cursor) begin(rv uint64) { c.last, c.leap = rv, nil }

// take returns what is wrong with e as the next event of the watch.
func (c *cursor) take(e event) error {
	c.explained = 0
	if err := c.oracle.truth.wait(e.rv); err != nil {
		return err
	}
	if e.typ == "BOOKMARK" {
		c.oracle.counts.add("bookmarks")
		return c.bookmark(e)
	}
	c.oracle.counts.add("events")
	if c.leap == nil {
		want, ok := c.oracle.truth.next(c.filter, c.last)
		for ok && want.rv < e.rv && c.skipUndone(want, e.rv-1) {
			want, ok = c.oracle.truth.next(c.filter, c.last)
		}
		if ok && want.rv == e.rv && want.typ == e.typ && want.key == e.key {
			c.last = e.rv
			return c.same(e, want)
		}
		removal := c.leaps && e.typ == "DELETED" && e.rv >= c.last // perhaps
		switch {
		case !ok && !removal:
			return fmt.Errorf("%s behind %d, where no change is left: it is a repetition, or never happened", e, c.last)
		case ok && e.rv < want.rv && !removal:
			return fmt.Errorf("%s behind %d, where the next is %s: it is a repetition, or never happened", e, c.last,
				want)
		}
		if err := c.startLeap(e); err != nil {
			return err
		}
	}
	return c.takeDifference(e)
}

// takeDifference takes e as one of the differences of a list: removals in any order, then versions
// in theirs.
func (c *cursor) takeDifference(e event) error {
	l := c.leap
	c.explained = l.to
	todo := &l.removals
	if len(l.removals) == 0 {
		todo = &l.versions
	}
	i := slices.IndexFunc(*todo, func(t told) bool { return t.typ == e.typ && t.key == e.key })
	if i < 0 {
		return fmt.Errorf("%s, where %s are left for a client that knew %d", e, l, c.last)
	}
	want := (*todo)[i]
	switch {
	case todo == &l.versions:
		if i > 0 || want.rv != e.rv {
			return fmt.Errorf("%s, where %s are left for a client that knew %d", e, l, c.last)
		}
	case l.from == 0 && c.last <= e.rv && e.rv < l.next:
		l.from = e.rv
	case l.from != e.rv:
		return fmt.Errorf("%s is a removal at another resourceVersion than the others, the last of which was at %d: %s",
			e, c.last, l)
	}
	*todo = slices.Delete(*todo, i, i+1)
	c.last = e.rv
	if len(l.removals)+len(l.versions) == 0 {
		c.begin(l.to)
	}
	return c.same(e, want)
}

// startLeap finds the list that explains why e comes and not the next change. The list may be
// behind e, and may not be known yet.
func (c *cursor) startLeap(e event) error {
	want, ok := c.oracle.truth.next(c.filter, c.last)
	err := fmt.Errorf("%s behind %d, where the next is %s", e, c.last, want)
	if !c.leaps {
		return err
	}
	lists := c.relists
	if !ok {
		if to, listed := lists.covering(c.filter.resource, c.form.name, e.rv+1); listed {
			if waited := c.oracle.truth.wait(to); waited != nil {
				return waited
			}
			want, ok = c.oracle.truth.next(c.filter, c.last)
		}
	}
	to, listed := lists.covering(c.filter.resource, c.form.name, want.rv)
	if !ok || !listed || e.rv > to {
		return fmt.Errorf("%w, and no list explains it (%v)", err, lists)
	}
	c.oracle.counts.add("differences of lists")
	if waited := c.oracle.truth.wait(to); waited != nil {
		return waited
	}
	c.leap = &leap{to: to, next: want.rv}
	c.leap.removals, c.leap.versions = c.oracle.truth.differences(c.filter, want.rv-1, to)
	if len(c.leap.removals)+len(c.leap.versions) == 0 {
		c.begin(to)
		return fmt.Errorf("%w, and a list as of %d has no differences", err, to)
	}
	return nil
}

// bookmark checks that the client has received everything up to a bookmark.
func (c *cursor) bookmark(e event) error {
	if e.rv < c.last {
		return fmt.Errorf("%s behind %d", e, c.last)
	}
	if l := c.leap; l != nil {
		c.explained = l.to
		if len(l.removals) > 0 && e.rv >= l.next || len(l.versions) > 0 && e.rv >= l.versions[0].rv {
			return fmt.Errorf("%s ahead of %s", e, l)
		}
		return nil
	}
	for {
		want, ok := c.oracle.truth.next(c.filter, c.last)
		if !ok || want.rv > e.rv {
			c.last = e.rv
			return nil
		}
		if !c.skipUndone(want, e.rv) {
			return fmt.Errorf("%s ahead of %s, and no list shows it undone (%v)", e, want, c.relists)
		}
	}
}

// skipUndone moves the client behind a list, as of most or before, that shows every change from want
// on undone, and so has no differences. It reports whether there is one.
func (c *cursor) skipUndone(want told, most uint64) bool {
	if !c.leaps {
		return false
	}
	to, listed := c.relists.covering(c.filter.resource, c.form.name, want.rv)
	if !listed || to > most || !c.undone(want, to) {
		return false
	}
	c.oracle.counts.add("differences of lists")
	c.explained = to
	c.begin(to)
	return true
}

// settled returns an error unless the client has received everything.
func (c *cursor) settled() error {
	if c.leap != nil {
		return fmt.Errorf("%s has not come", c.leap)
	}
	want, ok := c.oracle.truth.next(c.filter, c.last)
	if !ok {
		return nil
	}
	if c.leaps { // unless a list shows the rest undone
		to, listed := c.relists.find(c.filter.resource, c.form.name, want.rv)
		if _, behind := c.oracle.truth.next(c.filter, to); listed && !behind && c.undone(want, to) {
			return nil
		}
	}
	return fmt.Errorf("%s has not come, the last was %d", want, c.last)
}

// undone reports whether a list as of to shows every change from want on undone.
func (c *cursor) undone(want told, to uint64) bool {
	gone, versions := c.oracle.truth.differences(c.filter, want.rv-1, to)
	return len(gone)+len(versions) == 0
}

func (c *cursor) same(e event, want told) error {
	return c.oracle.same(c.form, c.filter.resource, e, want, c.leaps)
}

// state checks that events are the state as of rv.
func (o *oracle) state(f form, sel filter, events []event, rv uint64, ours bool) error {
	if err := o.truth.wait(rv); err != nil {
		return err
	}
	want := o.truth.at(sel, rv)
	for i, e := range events {
		one := want[e.key]
		switch {
		case one == nil:
			return fmt.Errorf("%s is in the state as of %d, where it does not belong, or comes twice", e, rv)
		case one.rv != e.rv:
			return fmt.Errorf("%s is in the state as of %d, want it @%d", e, rv, one.rv)
		case e.typ != "ADDED" && e.typ != "":
			return fmt.Errorf("%s among initial events", e)
		case i > 0 && events[i-1].key >= e.key:
			return fmt.Errorf("%s comes before %s", events[i-1], e)
		}
		if err := o.same(f, sel.resource, e, told{e.typ, e.rv, e.key, one}, ours); err != nil {
			return err
		}
		delete(want, e.key)
	}
	for key, one := range want {
		return fmt.Errorf("the state as of %d lacks %s@%d and %d others", rv, key, one.rv, len(want)-1)
	}
	return nil
}

// same compares the content of e with etcd's, and its bytes with those that other clients received.
func (o *oracle) same(f form, resource string, e event, want told, ours bool) error {
	o.counts.add("objects compared with etcd")
	if e.content != f.wants(want.as, e.inLean) {
		return fmt.Errorf("%s is not what etcd has (without managedFields: %t)", e, e.inLean)
	}
	form := f.name
	if e.typ == "" {
		form += " items"
	}
	if f.quiet {
		form += " quiet"
		o.counts.add("versions in a quiet view")
	}
	v := version{form, resource, e.key, want.as.rv, e.rv}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.bytes[v]
	if !s.agrees(e) {
		return fmt.Errorf("%s has other bytes than other clients received (straight from kube-apiserver: %t; "+
			"without managedFields: %t)", e, s.straight, e.inLean)
	}
	before := s
	switch {
	case e.inLean:
		s.lean = true
	case ours:
		s.ours = true
	default:
		s.straight = true
	}
	if s.straight && s.ours && !(before.straight && before.ours) {
		o.counts.add("versions with kube-apiserver's bytes")
	}
	if s.straight && s.lean && !(before.straight && before.lean) {
		o.counts.add("versions with these less managedFields")
	}
	o.bytes[v] = s
	return nil
}

// agrees notes the bytes of e, and reports whether they are those that other clients were sent. A
// whole object also says which bytes it has without managedFields.
func (s *sent) agrees(e event) bool {
	if s.less == (digest{}) {
		s.less = e.less.bytes
	}
	if s.bytes == (digest{}) && !e.inLean {
		s.bytes = e.bytes
	}
	return s.less == e.less.bytes && (e.inLean || s.bytes == e.bytes)
}

// relists are the relists in watchfan's log.
type relists struct {
	mu   sync.Mutex
	all  []relist
	late time.Duration // how long a line may be on its way
}

// relist is a lane's. Those of one lane are in the order of their resourceVersions.
type relist struct {
	lane string
	rv   uint64
}

func (r *relists) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d relists, the last %v", len(r.all), r.all[max(0, len(r.all)-20):])
}

func (r *relists) add(resource, encoding string, rv uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, relist{resource + " " + encoding, rv})
}

// find returns the first list of a lane at or behind rv.
func (r *relists) find(resource, encoding string, rv uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lane := laneNames[resource] + " " + encoding
	for _, to := range r.all {
		if to.lane == lane && to.rv >= rv {
			return to.rv, true
		}
	}
	return 0, false
}

// covering is find, and waits for the log, because clients may hear of a list first.
func (r *relists) covering(resource, encoding string, rv uint64) (to uint64, ok bool) {
	await(r.late, func() bool {
		to, ok = r.find(resource, encoding, rv)
		return ok
	})
	return to, ok
}

// laneNames are the names of our resources in watchfan's log.
var laneNames = map[string]string{"configmaps": "v1/configmaps", "widgets": "example.com/v1/widgets"}
