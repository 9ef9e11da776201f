package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	selfSubjectPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfSubjectKind = "SelfSubjectReview"

	maxOwnerBytes  = 64 << 10 // of a review, and so of what is remembered of one token
	maxOwnersBytes = 16 << 20 // of all tokens; a few hundred bytes each are usual
)

// Owners knows the owners of tokens. It asks kube-apiserver with the token itself
// (SelfSubjectReview, of Kubernetes 1.28 and later), and only when an audit log or a limit for each
// user wants the name. The name decides nothing: access reviews are made with the token. The user that
// a token impersonates is never asked for, because requests with Impersonate-* headers are passed
// through. Its methods may be called from any goroutine.
type Owners struct {
	// Immutable.
	server APIServer
	ttl    time.Duration
	queue  *reviewQueue
	ctx    context.Context // of the reviews
	cancel context.CancelFunc

	running sync.WaitGroup // the reviews

	mu    sync.Mutex // two requests must not both ask for one token
	known answers[*Owner]
}

func newOwners(server APIServer, queue *reviewQueue, ttl time.Duration) *Owners {
	o := &Owners{server: server, queue: queue, ttl: ttl}
	o.known.known.MostBytes, o.known.known.Size = maxOwnersBytes, func(w *Owner) int { return w.user.Size() }
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Owner is the owner of one token. It is known when kube-apiserver has answered or ReviewTimeout
// has passed.
type Owner struct {
	donec chan struct{} // closed when the rest is set; never sent on

	user    *UserInfo // nil: unknown, or nobody
	unknown string    // why there is no user; nothing of kube-apiserver's answer
	nobody  bool      // kube-apiserver does not accept the token
}

// Wait waits until the owner is known. It returns a user, or the reason why there is none.
func (w *Owner) Wait() (user *UserInfo, unknown string) {
	<-w.donec
	return w.user, w.unknown
}

// awaited waits until the owner is known, and reports false if ctx ends before.
func (w *Owner) awaited(ctx context.Context) bool {
	exchange.Waits(ctx)
	select {
	case <-w.donec:
		return true
	case <-ctx.Done():
		return false
	}
}

// Of returns the owner of the token that id brings, or the proxy's own user, without waiting for
// kube-apiserver.
func (o *Owners) Of(id Identity) *Owner {
	q := tokenQuestion(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if w, ok := o.known.get(q); ok {
		return w
	}
	w := &Owner{donec: make(chan struct{})}
	if o.ctx.Err() != nil {
		w.unknown = "this proxy is stopping"
		close(w.donec)
		return w
	}
	o.remember(id, q, w, ReviewTimeout+o.ttl)
	o.running.Go(func() { o.ask(q, id, w) })
	return w
}

// End cancels all reviews and returns when their goroutines have ended. No review begins after
// that. The audit log ends before, because its last events wait for owners.
func (o *Owners) End() {
	o.mu.Lock()
	o.cancel()
	o.mu.Unlock()
	o.running.Wait()
}

// ask asks kube-apiserver and remembers the answer, if there is one.
func (o *Owners) ask(q Question, id Identity, w *Owner) {
	defer close(w.donec)
	ctx, cancel := context.WithTimeout(o.ctx, ReviewTimeout)
	defer cancel()
	ttl := time.Duration(0)
	end, err := o.queue.begin(ctx, id)
	switch {
	case err == nil:
		if o.review(ctx, id, w) {
			ttl = o.ttl
		}
		end()
	case errors.Is(err, fairness.ErrRefused):
		w.unknown = "too many reviews wait for kube-apiserver"
	default:
		w.unknown = "kube-apiserver did not answer in time"
	}
	o.remember(id, q, w, ttl)
}

// remember keeps what is known of the token's owner, for its source.
func (o *Owners) remember(id Identity, q Question, w *Owner, ttl time.Duration) {
	o.known.put(sourceOf(o.queue.tokens, id), q, w, time.Now(), ttl)
}

// review sets w, and reports whether kube-apiserver's answer is to be remembered.
func (o *Owners) review(ctx context.Context, id Identity, w *Owner) (answered bool) {
	review := `{"kind":"` + selfSubjectKind + `","apiVersion":"authentication.k8s.io/v1"}`
	var reviewed struct {
		Kind   string
		Status struct{ UserInfo UserInfo }
	}
	code, _, err := postReview(ctx, o.server, id, selfSubjectPath, []byte(review), maxOwnerBytes, &reviewed)
	switch code {
	case http.StatusCreated, http.StatusOK:
	case 0:
		w.unknown = "kube-apiserver did not answer"
		return false
	case http.StatusUnauthorized:
		w.unknown, w.nobody = "kube-apiserver does not accept the token any more", true
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
	if err != nil || reviewed.Kind != selfSubjectKind || reviewed.Status.UserInfo.Name == "" {
		w.unknown = "kube-apiserver's SelfSubjectReview could not be read"
		return false
	}
	w.user = &reviewed.Status.UserInfo
	return true
}
