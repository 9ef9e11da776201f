package cached

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// smallAnswer is the size, in bytes, up to which an answer costs kube-apiserver no more than the
	// proof that a cache is current.
	smallAnswer = 32 << 10
	// smallPage is that size for a page of a list, if a proof takes longer than the page. It is 500
	// objects of 8 KiB. kubectl get -o json begins with such a page.
	smallPage = 4 << 20
	// mostSearched and searchTime bound the search for the size of an answer, in objects and in
	// time. The search is wasted if the answer is large. An answer that takes longer to find counts
	// as large. Most selectors take 0.1 µs for each object.
	mostSearched = 10_000
	searchTime   = 2 * time.Millisecond
	// searchStep is the number of objects between two checks of the clock.
	searchStep = 32
	// littleFor is how long a list counts as small after it was found small for an allowed client.
	littleFor = time.Minute
)

// passesUnasked reports whether r is passed through without a review. Such a read costs
// kube-apiserver one request and not two. The decision looks at no cache and no lane.
func (c *Reads) passesUnasked(x *exchange.Exchange, r *read) bool {
	switch {
	case r.indented(r.Accepts[0]):
		return true
	case r.listsTables():
		return c.shared.first(tablesQuestion(x, r))
	case !r.current(), r.Sharded(), r.View != nil: // whose objects might be whole
		return false
	case r.Verb == "get":
		return c.alone.unfollowed(r.GVR) || r.passAlone()
	case r.Verb == "list":
		return c.wasLittle(r) && r.passAlone()
	}
	return false
}

// passesAlone reports whether an allowed client's list is passed through because kube-apiserver
// answers it more cheaply. The list wants a small current state, and at most a few others do at the
// same time. A proof that the cache is current would then cost more, and take longer, than the
// answer. Gets are decided earlier; see passesUnasked.
func (c *Reads) passesAlone(ctx context.Context, r *read) bool {
	if r.Verb != "list" || r.Sharded() || r.View != nil || !r.current() || !r.lane.Synced() || r.filledSince() || !r.wantsLittle(ctx) {
		return false
	}
	if r.Limit == 0 && r.plain() {
		c.little.Put(r.sizeQuestion(), struct{}{}, time.Now(), littleFor)
	}
	return r.passAlone()
}

// wasLittle reports whether the same client was allowed the same list within littleFor, and the
// list was small.
func (c *Reads) wasLittle(r *read) bool {
	if !r.plain() {
		return false
	}
	_, little := c.little.Get(r.sizeQuestion())
	return little
}

// plain reports whether the selectors are short enough to hash at almost no cost.
func (r *read) plain() bool { return len(r.RawLabels)+len(r.RawFields) <= 1<<10 }

// current reports whether r is a get or list of a state at least as new as the request.
func (r *read) current() bool {
	return r.Verb != "watch" && r.ResourceVersion == "" && r.ContinueToken == ""
}

// indented reports whether the answer in this form is indented JSON.
func (r *read) indented(form request.Clause) bool {
	return r.Verb != "watch" && form.Encoding == framing.JSON && (r.Pretty || form.Pretty)
}

// passAlone reports whether r may be passed through as one of a few. r counts until release.
func (r *read) passAlone() bool {
	r.alone = r.counts.take(r.GVR, r.arrived)
	return r.alone
}

// sizeQuestion identifies a list by its client and its parameters, without its form.
func (r *read) sizeQuestion() auth.Question {
	q, _ := auth.ReviewFor(r.id, auth.AttributesOf(r.Request))
	// The attributes do not contain all of a selector.
	return sha256.Sum256(fmt.Appendf(nil, "%x %q %q", q, r.RawLabels, r.RawFields))
}

// wantsOne reports whether the list is of one name, which at most one object has.
func (r *read) wantsOne() bool {
	return r.SelectorName != "" && (r.namespace != "" || !r.info.Namespaced)
}

// wantsLittle reports whether the list is small in the current cache. If the search exceeds its
// bounds, the list counts as large.
func (r *read) wantsLittle(ctx context.Context) bool {
	if r.wantsOne() {
		return true
	}
	most := smallAnswer
	if r.Limit > 0 && r.lane.ProvesSlowly() {
		most = smallPage
	}
	size, selected, searched := 0, int64(0), 0
	began := time.Now()
	r.lane.Cache.Snapshot().Visit(r.filter, "", func(o *framing.Object, matches bool) bool {
		if searched++; searched%searchStep == 0 && (searched > mostSearched || time.Since(began) > searchTime || ctx.Err() != nil) {
			size = most + 1
			return false
		}
		if matches {
			size += len(o.Bytes())
			selected++
		}
		return size <= most && (r.Limit == 0 || selected < r.Limit)
	})
	return size <= most
}
