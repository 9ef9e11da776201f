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

// admission decides whether a watch or list may begin. Watches that are passed through count too:
// they cost us a connection and kube-apiserver a watcher. Who is refused is told to come again
// (429, with a Retry-After that client-go waits for and retries by itself). Its methods may be
// called from any goroutine.
type admission struct {
	// Immutable.
	maxWatches, maxPerUser int // 0 is any number
	memory                 *memory
	auth                   *auth.Authorizer // says who is one user
	log                    *slog.Logger

	mu      sync.Mutex
	watches int
	holders map[holder]int // with a watch, if there is a limit
	logged  map[rejection]time.Time
}

// rejection is why a request was refused: the log field and the metric label.
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

// begin lets the request of id begin, or returns why not. The caller releases slot when the request
// has ended; nil is nothing to release. wait bounds the question whose a token is.
func (a *admission) begin(wait context.Context, id auth.Identity, req *request.Request, cacheable bool) (slot *watchSlot, refused *metav1.Status) {
	watch := req.IsWatch()
	if a.memory.refuses() && (watch || cacheable && req.Verb == "list") {
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
			return nil, nil // and kube-apiserver says so
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

// holder is whom a watch counts for: a user or, of whoever brings a token, all whose tokens say the
// same of their owner. What a token says need not be true, so nobody is refused for it; but as long
// as all who say it have no more watches than one user may, kube-apiserver need not be asked whose
// each is. So a user may have the limit twice: as whom its tokens say it is, and as itself.
type holder struct {
	user    auth.UserKey
	claimed bool
}

// claimant returns whom a request of id counts for while nobody has been asked. All tokens that say
// nothing count as one's.
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
	return holder{} // ourselves
}

// take counts a watch for h, or returns which limit it would exceed.
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

// refuseLocked counts a refusal, and logs one a minute for each reason.
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

// Release gives it up.
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
