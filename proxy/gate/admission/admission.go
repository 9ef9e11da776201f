package admission

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// Admission decides whether a watch or list may begin. Watches that are passed through count too,
// because they cost the proxy a connection and kube-apiserver a watcher. A refused client gets 429
// with a Retry-After. client-go waits for that time and retries by itself. Its methods may
// be called from any goroutine.
type Admission struct {
	// Immutable.
	maxWatches, maxPerUser int // 0 is no limit
	memory                 *Memory
	auth                   *auth.Authorizer // identifies users
	refused                map[rejection]*refusals
	log                    *slog.Logger

	mu      sync.Mutex
	watches int
	holders map[holder]*place // of those with a watch
}

// refusals are those for one reason: their number, and when one is logged.
type refusals struct {
	*metrics.Counter
	logged rate.Sometimes
}

// rejection is the reason for which a request was refused. It is a log field and a metric label.
type rejection string

const (
	rejectedWatches     rejection = "max_watches"
	rejectedUserWatches rejection = "max_watches_per_user"
	rejectedLarge       rejection = "max_large_selectors_per_user"
	rejectedMemory      rejection = "memory"
	rejectedFilling     rejection = "lane_filling"
)

// mostLarge is how many watches with large selectors one user may have open at a time. They pass
// through, and kube-apiserver compares each of their requirements with each event, in the goroutine
// that serves all watches of the resource: 60 watches of 54 KB and 40 events a second take a quarter
// of a core, and triple the latency of everybody's events.
const mostLarge = 4

// New returns the admission of o's limits. auth identifies users.
func New(o *Options, m *Memory, auth *auth.Authorizer, set *metrics.Set, log *slog.Logger) *Admission {
	a := &Admission{
		maxWatches: o.MaxWatches, maxPerUser: o.MaxWatchesPerUser, memory: m, auth: auth, log: log,
		refused: make(map[rejection]*refusals), holders: make(map[holder]*place),
	}
	for _, r := range []rejection{rejectedWatches, rejectedUserWatches, rejectedLarge, rejectedMemory, rejectedFilling} {
		a.refused[r] = &refusals{apistatus.Rejections(set, string(r)), rate.Sometimes{Interval: time.Minute}}
	}
	return a
}

// Begin admits the request of id, or returns the Status that refuses it. The caller releases slot
// when the request has ended, unless slot is nil. wait bounds the lookup of a token's owner.
func (a *Admission) Begin(wait context.Context, id auth.Identity, req *request.Request, cacheable bool) (slot *Slot, refused *metav1.Status) {
	watch := req.IsWatch()
	if a.memory.refuses() && (watch || cacheable && req.Verb == "list" && !req.AsTable()) {
		return nil, a.refuse(rejectedMemory, "this proxy is short of memory")
	}
	if !watch {
		return nil, nil
	}
	h, why := claimant(id), rejection("")
	if !req.LargeSelectors {
		slot, why = a.take(h)
	}
	if req.LargeSelectors || why == rejectedUserWatches && h.claimed {
		user, somebody := a.auth.UserKey(wait, id)
		if !somebody {
			return nil, nil // kube-apiserver rejects the token
		}
		slot, why = a.take(holder{user: user, large: req.LargeSelectors})
	}
	switch why {
	case rejectedWatches:
		return nil, a.refuse(why, fmt.Sprintf("this proxy serves at most %d watches at a time", a.maxWatches))
	case rejectedUserWatches:
		return nil, a.refuse(why, fmt.Sprintf("this proxy serves at most %d watches of one user at a time", a.maxPerUser))
	case rejectedLarge:
		return nil, a.refuse(why, fmt.Sprintf("this proxy serves at most %d watches of one user with large selectors at a "+
			"time; selectors of at most %d requirements and %d bytes do not count", mostLarge, request.MaxRequirements, request.MaxSelectorBytes))
	}
	return slot, nil
}

// holder is the party that a watch counts for. It is a user, or all clients whose tokens claim the
// same owner. A claim may be false, so no client is refused because of it. But while all clients
// with the same claim together stay within the limit of one user, kube-apiserver need not be asked
// for the owners of their tokens. A user may therefore reach the limit twice: once under the claim
// of its tokens, and once under its own name. Watches with large selectors have a limit of their
// own, and count under the user's name only.
type holder struct {
	user    auth.UserKey
	claimed bool
	large   bool
}

// claimant returns the holder for a request of id without asking kube-apiserver. All tokens without
// a claim share one holder.
func claimant(id auth.Identity) holder {
	if user, ok := auth.NamedKey(id); ok {
		return holder{user: user}
	}
	name, _ := auth.TokenSubject(id.Token)
	return holder{user: auth.UserKey{Name: name}, claimed: true}
}

// take counts a watch for h, or returns the limit that the watch would exceed.
func (a *Admission) take(h holder) (slot *Slot, exceeded rejection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.holders[h]
	if p == nil {
		p = &place{admission: a, holder: h}
	}
	most, beyond := a.maxPerUser, rejectedUserWatches
	if h.large {
		most, beyond = mostLarge, rejectedLarge
	}
	switch {
	case a.maxWatches > 0 && a.watches >= a.maxWatches:
		return nil, rejectedWatches
	case most > 0 && p.watches >= most:
		return nil, beyond
	}
	a.holders[h] = p
	a.watches++
	p.watches++
	return &Slot{place: p}, ""
}

// TooManyWaiting returns the 429 for a client that has waited too long for a lane to be filled. message
// gives the reason.
func (a *Admission) TooManyWaiting(message string) *metav1.Status {
	return a.refuse(rejectedFilling, message)
}

// refuse counts a refusal, and logs at most one a minute for each reason.
func (a *Admission) refuse(why rejection, message string) *metav1.Status {
	refused := a.refused[why]
	refused.Inc()
	refused.logged.Do(func() {
		a.mu.Lock()
		watches := a.watches
		a.mu.Unlock()
		a.log.Warn("Refused requests", "reason", string(why), "watches", watches)
	})
	return apistatus.TooManyRequests(message)
}

// place is the watches of one holder within the limits.
type place struct {
	admission *Admission
	holder    holder
	watches   int // guarded by admission.mu
}

// Slot is one watch within the limits. Each open watch has one, so it is small.
type Slot struct {
	place    *place
	released bool // guarded by admission.mu
}

// Release frees the slot. Only the first call has an effect.
func (s *Slot) Release() {
	p := s.place
	a := p.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	a.watches--
	if p.watches--; p.watches == 0 {
		delete(a.holders, p.holder)
	}
}
