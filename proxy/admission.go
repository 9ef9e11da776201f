package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/request"
)

// admission decides whether a watch or list may begin. Watches that are passed through count too,
// because they cost the proxy a connection and kube-apiserver a watcher. A refused client gets 429
// with a Retry-After. client-go waits for that time and retries by itself. The methods of admission
// may be called from any goroutine.
type admission struct {
	// Immutable.
	maxWatches, maxPerUser int // 0 is no limit
	memory                 *memory
	auth                   *auth.Authorizer // identifies users
	log                    *slog.Logger

	mu      sync.Mutex
	watches int
	holders map[holder]int // number of watches of each holder; only counted with a limit
	logged  map[rejection]time.Time
}

// rejection is the reason for which a request was refused. It is a log field and a metric label.
type rejection string

const (
	rejectedWatches     rejection = "max_watches"
	rejectedUserWatches rejection = "max_watches_per_user"
	rejectedMemory      rejection = "memory"
	rejectedFilling     rejection = "lane_filling"
)

func newAdmission(opts *Options, m *memory, auth *auth.Authorizer, log *slog.Logger) *admission {
	return &admission{
		maxWatches: opts.MaxWatches, maxPerUser: opts.MaxWatchesPerUser, memory: m, auth: auth, log: log,
		holders: make(map[holder]int), logged: make(map[rejection]time.Time),
	}
}

// begin admits the request of id, or returns the Status that refuses it. The caller releases slot
// when the request has ended, unless slot is nil. wait bounds the lookup of a token's owner.
func (a *admission) begin(wait context.Context, id auth.Identity, req *request.Request, cacheable bool) (slot *watchSlot, refused *metav1.Status) {
	watch := req.IsWatch()
	if a.memory.refuses() && (watch || cacheable && req.Verb == "list" && !req.AsTable()) {
		return nil, a.refuse(rejectedMemory, "this proxy is short of memory")
	}
	if !watch {
		return nil, nil
	}
	h := claimant(id)
	slot, why := a.take(h)
	if why == rejectedUserWatches && h.claimed {
		user, somebody := a.auth.UserKey(wait, id)
		if !somebody {
			return nil, nil // kube-apiserver rejects the token
		}
		slot, why = a.take(holder{user: user})
	}
	switch why {
	case rejectedWatches:
		return nil, a.refuse(why, fmt.Sprintf("this proxy serves at most %d watches at a time", a.maxWatches))
	case rejectedUserWatches:
		return nil, a.refuse(why, fmt.Sprintf("this proxy serves at most %d watches of one user at a time", a.maxPerUser))
	}
	return slot, nil
}

// holder is the party that a watch counts for. It is a user, or all clients whose tokens claim the
// same owner. A claim may be false, so no client is refused because of it. But while all clients
// with the same claim together stay within the limit of one user, kube-apiserver need not be asked
// for the owners of their tokens. A user may therefore reach the limit twice: once under the claim
// of its tokens, and once under its own name.
type holder struct {
	user    auth.UserKey
	claimed bool
}

// claimant returns the holder for a request of id without asking kube-apiserver. All tokens without
// a claim share one holder.
func claimant(id auth.Identity) holder {
	switch {
	case id.User != nil:
		return holder{user: auth.UserKey{Name: id.User.Name}}
	case id.Kind == auth.KindToken:
		name, _ := auth.TokenSubject(id.Token)
		return holder{user: auth.UserKey{Name: name}, claimed: true}
	case id.Kind == auth.KindAnonymous:
		return holder{user: auth.UserKey{Name: auth.AnonymousUser}}
	}
	return holder{} // the proxy itself
}

// take counts a watch for h, or returns the limit that the watch would exceed.
func (a *admission) take(h holder) (slot *watchSlot, exceeded rejection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.maxWatches > 0 && a.watches >= a.maxWatches:
		return nil, rejectedWatches
	case a.maxPerUser > 0 && a.holders[h] >= a.maxPerUser:
		return nil, rejectedUserWatches
	}
	a.watches++
	if a.maxPerUser > 0 {
		a.holders[h]++
	}
	return &watchSlot{admission: a, holder: h}, ""
}

func (a *admission) refuse(why rejection, message string) *metav1.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refuseLocked(why, message)
}

// refuseLocked counts a refusal, and logs at most one a minute for each reason.
func (a *admission) refuseLocked(why rejection, message string) *metav1.Status {
	rejectedTooMany[why].Inc()
	if now := time.Now(); now.Sub(a.logged[why]) >= time.Minute {
		a.logged[why] = now
		a.log.Warn("Refused requests", "reason", string(why), "watches", a.watches)
	}
	return apistatus.TooManyRequests(message)
}

// watchSlot is one watch's place within the limits.
type watchSlot struct {
	admission *admission
	holder    holder
	once      sync.Once
}

// Release frees the slot. Only the first call has an effect.
func (s *watchSlot) Release() {
	s.once.Do(func() {
		a := s.admission
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches--
		if a.maxPerUser == 0 {
			return
		}
		if a.holders[s.holder]--; a.holders[s.holder] == 0 {
			delete(a.holders, s.holder)
		}
	})
}
