package proxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// admission decides whether a watch or list may begin. Watches that are passed through count too: they cost us a connection and
// kube-apiserver a watcher. Who is refused is told to come again (429, with a Retry-After that client-go waits for and retries by itself).
// Its methods may be called from any goroutine.
type admission struct {
	// Immutable.
	maxWatches, maxPerUser int // 0 is any number
	memory                 *memory
	auth                   *authorizer // says who is one user
	log                    *slog.Logger

	mu      sync.Mutex
	watches int
	users   map[userKey]int // with a watch, if there is a limit
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

func newAdmission(opts *Options, m *memory, auth *authorizer, log *slog.Logger) *admission {
	return &admission{
		maxWatches: opts.MaxWatches, maxPerUser: opts.MaxWatchesPerUser, memory: m, auth: auth, log: log,
		users: make(map[userKey]int), logged: make(map[rejection]time.Time),
	}
}

// retryLeast and retrySpread are when a refused client comes again, in seconds: all at different times, so that those who came at once
// don't do so for ever.
const retryLeast, retrySpread = 5, 11

// begin lets the request of ctx begin, or returns why not; req is what lanes could answer of it, nil is nothing. slot is to be released when
// the request has ended; nil is nothing to release. wait ends the wait for whose a token is.
func (a *admission) begin(wait context.Context, ctx *fasthttp.RequestCtx, id identity, req *request) (slot *watchSlot, refused *metav1.Status) {
	watch := isWatch(ctx, req)
	if a.memory.refuses() && (watch || req != nil && req.verb == "list") {
		return nil, a.refuse(rejectedMemory, "this proxy is short of memory")
	}
	if !watch {
		return nil, nil
	}
	slot = &watchSlot{admission: a}
	if a.maxPerUser > 0 {
		var somebody bool
		if slot.user, somebody = a.auth.userKey(wait, id); !somebody {
			return nil, nil // and kube-apiserver says so
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.maxWatches > 0 && a.watches >= a.maxWatches:
		return nil, a.refuseLocked(rejectedWatches, fmt.Sprintf("this proxy serves at most %d watches at a time", a.maxWatches))
	case a.maxPerUser > 0 && a.users[slot.user] >= a.maxPerUser:
		return nil, a.refuseLocked(rejectedUserWatches, fmt.Sprintf("this proxy serves at most %d watches of one user at a time", a.maxPerUser))
	}
	a.watches++
	if a.maxPerUser > 0 {
		a.users[slot.user]++
	}
	return slot, nil
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
	st := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later: "+message)
	st.Details = &metav1.StatusDetails{RetryAfterSeconds: retryLeast + rand.Int32N(retrySpread)}
	return st
}

// isWatch reports whether the request asks for a watch, as kube-apiserver would read it.
func isWatch(ctx *fasthttp.RequestCtx, req *request) bool {
	if req != nil {
		return req.verb == "watch"
	}
	path, query := ctx.Path(), ctx.QueryArgs()
	if !ctx.IsGet() || !bytes.HasPrefix(path, []byte("/api/")) && !bytes.HasPrefix(path, []byte("/apis/")) {
		return false
	}
	return query.Has("watch") && isTrue(string(query.Peek("watch"))) || bytes.Contains(path, []byte("/watch/"))
}

// watchSlot is one watch's place within the limits.
type watchSlot struct {
	admission *admission
	user      userKey
	once      sync.Once
}

// release gives it up. It may be called more than once, and on nil.
func (s *watchSlot) release() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		a := s.admission
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches--
		if a.maxPerUser == 0 {
			return
		}
		if a.users[s.user]--; a.users[s.user] == 0 {
			delete(a.users, s.user)
		}
	})
}

// slotKey is where a request's context has its slot, until its connection is taken over.
type slotKey struct{}

func slotOf(ctx *fasthttp.RequestCtx) *watchSlot {
	slot, _ := ctx.UserValue(slotKey{}).(*watchSlot)
	return slot
}
