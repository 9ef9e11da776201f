package cached

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// smallAnswer is the size, in bytes, of an answer that kube-apiserver gives as easily as it
	// tells how new it is.
	smallAnswer = 32 << 10
	// mostSearched and searchTime bound the search that tells how large an answer would be, in
	// objects and in time: it is work for nothing if the answer is large. An answer that takes
	// longer to find counts as large. Most selectors take 0.1 µs for each object.
	mostSearched = 10_000
	searchTime   = 2 * time.Millisecond
	// searchStep is after how many objects the clock is looked at.
	searchStep = 32
	// littleFor is for how long a list is taken for small that was small when its client might read
	// it.
	littleFor = time.Minute
)

// passesUnasked reports whether kube-apiserver is to answer without having been asked whether the
// client may read, so that a read that passes through costs it one request and not two. Nothing
// that is cached, and no lane, has a say in that.
func (c *Reads) passesUnasked(r *read) bool {
	switch {
	case r.indented(r.Accepts[0]):
		return true
	case !r.current():
		return false
	case r.Verb == "get":
		return c.alone.unfollowed(r.GVR) || r.passAlone()
	case r.Verb == "list":
		return c.wasLittle(r) && r.passAlone()
	}
	return false
}

// passesAlone reports whether a list of a client that may read is better answered by kube-apiserver
// itself: it wants the current state of little, and at most a few others do, so that proving the
// cache current would cost more, and take longer, than the answer. Gets are decided before; see
// passesUnasked.
func (c *Reads) passesAlone(ctx context.Context, r *read) bool {
	if r.Verb != "list" || !r.current() || !r.lane.Synced() || r.filledSince() || !r.wantsLittle(ctx) {
		return false
	}
	if r.Limit == 0 && r.plain() {
		c.little.Put(r.sizeQuestion(), struct{}{}, time.Now(), littleFor)
	}
	return r.passAlone()
}

// wasLittle reports whether the same client's same list was small a moment ago, when it might read
// it.
func (c *Reads) wasLittle(r *read) bool {
	if !r.plain() {
		return false
	}
	_, little := c.little.Get(r.sizeQuestion())
	return little
}

// plain reports whether the selectors are short enough for their hash to cost next to nothing.
func (r *read) plain() bool { return len(r.RawLabels)+len(r.RawFields) <= 1<<10 }

// current reports whether r wants a state at least as new as itself, all at once.
func (r *read) current() bool {
	return r.Verb != "watch" && r.ResourceVersion == "" && r.ContinueToken == ""
}

// indented reports whether the answer in a form is JSON for people's eyes.
func (r *read) indented(form request.Clause) bool {
	return r.Verb != "watch" && form.Encoding == framing.JSON && (r.Pretty || form.Pretty)
}

// passAlone reports whether r may be passed through as one of a few. It counts as one until it is
// released.
func (r *read) passAlone() bool {
	r.alone = r.counts.take(r.GVR, r.arrived)
	return r.alone
}

// sizeQuestion tells lists apart by who asks and by what is asked for, whatever the form.
func (r *read) sizeQuestion() auth.Question {
	q, _ := auth.ReviewFor(r.id, auth.AttributesOf(r.Request))
	return sha256.Sum256(fmt.Appendf(nil, "%x %q %q", q, r.RawLabels, r.RawFields)) // the attributes do not have all of a selector
}

// wantsLittle reports whether the list would be small, as the cache stands, as far as that is soon
// found.
func (r *read) wantsLittle(ctx context.Context) bool {
	if r.SelectorName != "" && (r.namespace != "" || !r.info.Namespaced) {
		return true // at most one object
	}
	size, selected, searched := 0, int64(0), 0
	began := time.Now()
	r.lane.Cache.Snapshot().Ascend(r.filter.Scope(), "", func(o *framing.Object) bool {
		if searched++; searched%searchStep == 0 && (searched > mostSearched || time.Since(began) > searchTime || ctx.Err() != nil) {
			size = smallAnswer + 1
			return false
		}
		if r.filter.Match(o) {
			size += len(o.Bytes())
			selected++
		}
		return size <= smallAnswer && (r.Limit == 0 || selected < r.Limit)
	})
	return size <= smallAnswer
}
