package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/request"
)

const (
	selfSubjectPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfSubjectKind = "SelfSubjectReview"

	maxOwnerBytes = 64 << 10 // of a review, and so of what is remembered of one token
)

// Owners says who the owners of tokens are, by asking kube-apiserver with the token itself
// (SelfSubjectReview, of Kubernetes 1.28 and later), which takes no rights of ours. Nothing here
// needs to know that but an audit log, and a limit for each user: kube-apiserver is asked only when
// one of these wants it. The name decides nothing: what the owner may do is asked with the token.
//
// Whom a token impersonates is never asked, because what carries Impersonate-* headers is passed
// through.
//
// Its methods may be called from any goroutine.
type Owners struct {
	// Immutable.
	upstream Doer
	TTL      time.Duration
	queue    *reviewQueue

	mu    sync.Mutex // of asking only once
	known TTLCache[*Owner]
}

func NewOwners(upstream Doer, queue *reviewQueue, ttl time.Duration) *Owners {
	return &Owners{upstream: upstream, TTL: ttl, queue: queue}
}

// Owner is whose a token is, once kube-apiserver has been heard, or reviewTimeout has passed.
type Owner struct {
	Donec chan struct{} // closed when the rest is set; never sent on

	User    *UserInfo // nil: unknown, or nobody
	Unknown string    // why there is no user; what kube-apiserver has said of a token is no part of it
	nobody  bool      // the token is nobody's
}

// Of returns the owner of the token that id brings, or who we are ourselves, without waiting for
// it.
func (o *Owners) Of(id Identity) *Owner {
	q := tokenQuestion(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if w, ok := o.known.Get(q); ok {
		return w
	}
	w := &Owner{Donec: make(chan struct{})}
	o.known.Put(q, w, time.Now(), ReviewTimeout+o.TTL)
	go o.ask(q, id, w)
	return w
}

// tokenQuestion is what stands for the token of id; for us ourselves it is that of no token.
func tokenQuestion(id Identity) Question {
	if id.Kind == KindOwn {
		return Question{}
	}
	return sha256.Sum256([]byte(id.Token))
}

// ask asks kube-apiserver and remembers what it says, unless it says nothing.
func (o *Owners) ask(q Question, id Identity, w *Owner) {
	defer close(w.Donec)
	ctx, cancel := context.WithTimeout(context.Background(), ReviewTimeout)
	defer cancel()
	remember := time.Duration(0)
	end, err := o.queue.begin(ctx, id)
	switch {
	case err == nil:
		if o.review(ctx, id, w) {
			remember = o.TTL
		}
		end()
	case errors.Is(err, errReviewsBusy):
		w.Unknown = "too many reviews wait for kube-apiserver"
	default:
		w.Unknown = "kube-apiserver did not answer in time"
	}
	o.known.Put(q, w, time.Now(), remember)
}

// review sets w, and reports whether kube-apiserver has said something that is worth remembering.
func (o *Owners) review(ctx context.Context, id Identity, w *Owner) (answered bool) {
	if ctx.Err() != nil {
		w.Unknown = "kube-apiserver could not be asked in time"
		return false
	}
	review := `{"kind":"` + selfSubjectKind + `","apiVersion":"authentication.k8s.io/v1"}`
	code, answer, err := postReview(ctx, o.upstream, id, selfSubjectPath, []byte(review), maxOwnerBytes)
	switch code {
	case http.StatusCreated, http.StatusOK:
	case 0:
		w.Unknown = "kube-apiserver did not answer"
		return false
	case http.StatusUnauthorized:
		w.Unknown, w.nobody = "kube-apiserver does not take the token any more", true
		return true
	case http.StatusNotFound:
		w.Unknown = "kube-apiserver has no SelfSubjectReview: it is older than 1.28"
		return true
	case http.StatusForbidden:
		w.Unknown = "the client may not create a SelfSubjectReview, which system:basic-user allows"
		return true
	default:
		w.Unknown = fmt.Sprintf("kube-apiserver answered a SelfSubjectReview with %d", code)
		return false
	}
	var reviewed struct {
		Kind   string
		Status struct {
			UserInfo struct {
				Username, UID string
				Groups        []string
				Extra         map[string][]string
			}
		}
	}
	u := &reviewed.Status.UserInfo
	if err != nil || json.Unmarshal(answer, &reviewed) != nil || reviewed.Kind != selfSubjectKind || u.Username == "" {
		w.Unknown = "kube-apiserver's SelfSubjectReview could not be read"
		return false
	}
	w.User = &UserInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
	return true
}

// UserKey is one user, as limits count them: comparable, and the same for all identities of the
// same user name, however it was shown. The zero userKey is the proxy itself, whose name does not
// matter: all who come to the insecure port without a token are one.
type UserKey struct {
	Name  string
	token Question // in place of the name where kube-apiserver does not say it: a token is a user then
}

// UserKey returns whom a request of id counts for, having asked kube-apiserver whose a token is, or
// being told so by one who has. ok is false for a token that kube-apiserver takes no more. If it
// does not say whose a token is before ctx ends, or can't, each token counts for itself; the next
// call may return another key for the same token, so who gives back what it took must keep the key.
func (a *Authorizer) UserKey(ctx context.Context, id Identity) (key UserKey, ok bool) {
	switch {
	case id.Kind == KindOwn:
		return UserKey{}, true
	case id.User != nil:
		return UserKey{Name: id.User.Name}, true
	case id.Kind == KindAnonymous:
		return UserKey{Name: AnonymousUser}, true
	}
	w := a.Owners.Of(id)
	request.Waits(ctx)
	select {
	case <-w.Donec:
	case <-ctx.Done():
		return UserKey{token: tokenQuestion(id)}, true
	}
	switch {
	case w.nobody:
		return UserKey{}, false
	case w.User == nil:
		return UserKey{token: tokenQuestion(id)}, true
	}
	return UserKey{Name: w.User.Name}, true
}
