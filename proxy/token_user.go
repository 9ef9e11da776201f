package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	selfSubjectPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfSubjectKind = "SelfSubjectReview"

	maxOwnerBytes = 64 << 10 // of a review, and so of what is remembered of one token
)

// owners says who the owners of tokens are, by asking kube-apiserver with the token itself (SelfSubjectReview, of Kubernetes 1.28 and later),
// which takes no rights of ours. Nothing here needs to know that but an audit log, and a limit for each user: kube-apiserver is asked only when one
// of these wants it. The name decides nothing: what the owner may do is asked with the token.
//
// Whom a token impersonates is never asked, because what carries Impersonate-* headers is passed through.
//
// Its methods may be called from any goroutine.
type owners struct {
	// Immutable.
	upstream doer
	ttl      time.Duration
	queue    *reviewQueue

	mu    sync.Mutex // of asking only once
	known answers[*owner]
}

func newOwners(upstream doer, queue *reviewQueue, ttl time.Duration) *owners {
	return &owners{upstream: upstream, ttl: ttl, queue: queue}
}

// owner is whose a token is, once kube-apiserver has been heard, or reviewTimeout has passed.
type owner struct {
	donec chan struct{} // closed when the rest is set; never sent on

	user    *userInfo // nil: unknown, or nobody
	unknown string    // why there is no user; what kube-apiserver has said of a token is no part of it
	nobody  bool      // the token is nobody's
}

// of returns the owner of the token that id brings, or who we are ourselves, without waiting for it.
func (o *owners) of(id identity) *owner {
	q := tokenQuestion(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if w, ok := o.known.get(q); ok {
		return w
	}
	w := &owner{donec: make(chan struct{})}
	o.known.put(q, w, time.Now(), reviewTimeout+o.ttl)
	go o.ask(q, id, w)
	return w
}

// tokenQuestion is what stands for the token of id; for us ourselves it is that of no token.
func tokenQuestion(id identity) question {
	if id.kind == kindOwn {
		return question{}
	}
	return sha256.Sum256([]byte(id.token))
}

// ask asks kube-apiserver and remembers what it says, unless it says nothing.
func (o *owners) ask(q question, id identity, w *owner) {
	defer close(w.donec)
	ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
	defer cancel()
	remember := time.Duration(0)
	end, err := o.queue.begin(ctx, id)
	switch {
	case err == nil:
		if o.review(ctx, id, w) {
			remember = o.ttl
		}
		end()
	case errors.Is(err, errReviewsBusy):
		w.unknown = "too many reviews wait for kube-apiserver"
	default:
		w.unknown = "kube-apiserver did not answer in time"
	}
	o.known.put(q, w, time.Now(), remember)
}

// review sets w, and reports whether kube-apiserver has said something that is worth remembering.
func (o *owners) review(ctx context.Context, id identity, w *owner) (answered bool) {
	if ctx.Err() != nil {
		w.unknown = "kube-apiserver could not be asked in time"
		return false
	}
	review := `{"kind":"` + selfSubjectKind + `","apiVersion":"authentication.k8s.io/v1"}`
	code, answer, err := postReview(ctx, o.upstream, id, selfSubjectPath, []byte(review), maxOwnerBytes)
	switch code {
	case http.StatusCreated, http.StatusOK:
	case 0:
		w.unknown = "kube-apiserver did not answer"
		return false
	case http.StatusUnauthorized:
		w.unknown, w.nobody = "kube-apiserver does not take the token any more", true
		return true
	case http.StatusNotFound:
		w.unknown = "kube-apiserver has no SelfSubjectReview: it is older than 1.28"
		return true
	case http.StatusForbidden:
		w.unknown = "the client may not create a SelfSubjectReview, which system:basic-user allows"
		return true
	default:
		w.unknown = fmt.Sprintf("kube-apiserver answered a SelfSubjectReview with %d", code)
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
		w.unknown = "kube-apiserver's SelfSubjectReview could not be read"
		return false
	}
	w.user = &userInfo{name: u.Username, uid: u.UID, groups: u.Groups, extra: u.Extra}
	return true
}

// userKey is one user, as limits count them: comparable, and the same for all identities of the same user name, however it was shown.
// The zero userKey is the proxy itself, whose name does not matter: all who come to the insecure port without a token are one.
type userKey struct {
	name  string
	token question // in place of the name where kube-apiserver does not say it: a token is a user then
}

// userKey returns whom a request of id counts for, having asked kube-apiserver whose a token is, or being told so by one who has. ok is false for a
// token that kube-apiserver takes no more. If it does not say whose a token is before ctx ends, or can't, each token counts for itself; the
// next call may return another key for the same token, so who gives back what it took must keep the key.
func (a *authorizer) userKey(ctx context.Context, id identity) (key userKey, ok bool) {
	switch {
	case id.kind == kindOwn:
		return userKey{}, true
	case id.user != nil:
		return userKey{name: id.user.name}, true
	case id.kind == kindAnonymous:
		return userKey{name: anonymousUser}, true
	}
	w := a.owners.of(id)
	waits(ctx)
	select {
	case <-w.donec:
	case <-ctx.Done():
		return userKey{token: tokenQuestion(id)}, true
	}
	switch {
	case w.nobody:
		return userKey{}, false
	case w.user == nil:
		return userKey{token: tokenQuestion(id)}, true
	}
	return userKey{name: w.user.name}, true
}
