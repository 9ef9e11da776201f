package reflector

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// attempt is one attempt of the reflector to follow its collection, which has ended.
type attempt struct {
	began     time.Time
	progress  uint64 // of the cache before the attempt
	relisting bool   // the attempt had to list the collection
	err       error  // nil if the watch came to a proper end
}

// status returns upstream's refusal of the attempt, nil if there was none.
func (a attempt) status() (status *statusError) {
	errors.As(a.err, &status)
	return status
}

// nextStep is what the reflector does after an attempt.
type nextStep int

const (
	nextRetry  nextStep = iota // after outcome.wait: resume the watch, or list if Reflector.relist is set
	nextResume                 // at once: the watch came to its timeout
	nextStop                   // Run ends
)

// outcome is what follows from an attempt.
type outcome struct {
	next nextStep
	wait time.Duration // of nextRetry
	err  error         // of nextRetry and nextStop
}

var (
	// ErrRedefined stops a reflector whose resource has another definition.
	ErrRedefined = errors.New("the resource has been redefined")
	// ErrNotServed stops a reflector whose resource upstream does not know.
	ErrNotServed = errors.New("upstream does not serve the resource")

	errEndedAtOnce = errors.New("watch ended at once")
)

const (
	minBackoff   = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	beginTimeout = 3 * time.Second // for which requests wait while upstream says that it is busy
)

// outcome decides what to do after an attempt.
func (r *Reflector) outcome(a attempt) outcome {
	status := a.status()
	switch {
	case uncachable(a.err) && (a.relisting || !r.filled), errors.Is(a.err, ErrNoRoom), errors.Is(a.err, framing.ErrNoTable):
		return outcome{next: nextStop, err: a.err}
	case r.redefined(a.began, a.err == nil):
		return outcome{next: nextStop, err: ErrRedefined}
	case status != nil && status.Code == http.StatusNotFound:
		return outcome{next: nextStop, err: ErrNotServed}
	}
	if time.Since(a.began) > 10*time.Second || r.cache.Progress() > a.progress {
		r.backoff = minBackoff
	}
	if a.err == nil && time.Since(a.began) > time.Second {
		return outcome{next: nextResume}
	}
	return outcome{next: nextRetry, wait: r.retryIn(a, status), err: cmp.Or(a.err, errEndedAtOnce)}
}

// retryIn returns how long the reflector waits before the next attempt.
func (r *Reflector) retryIn(a attempt, status *statusError) time.Duration {
	if r.relist && !a.relisting {
		return rand.N(minBackoff) // upstream answers, and the cache is old until the collection is listed
	}
	wait := r.backoff + rand.N(r.backoff)
	if status != nil && status.retryAfter > wait {
		wait = status.retryAfter + rand.N(r.backoff)
	}
	return wait
}
