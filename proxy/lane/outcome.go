package lane

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// attempt is one attempt of the reflector to follow its resource, which has ended.
type attempt struct {
	began     time.Time
	progress  uint64 // of the cache before the attempt
	relisting bool   // the attempt had to list the collection
	err       error  // nil if the watch came to a proper end
}

// status returns what upstream refused the attempt with, nil if it did not.
func (a attempt) status() (status *statusError) {
	errors.As(a.err, &status)
	return status
}

// nextStep is what the reflector does after an attempt.
type nextStep int

const (
	nextRetry      nextStep = iota // after outcome.wait: resume the watch, or list if reflector.relist is set
	nextResume                     // at once: the watch came to its timeout
	nextStop                       // the lane ends
	nextQuarantine                 // the lane ends, and no other begins within outcome.wait
)

// outcome is what follows from an attempt.
type outcome struct {
	next nextStep
	wait time.Duration
	err  error // of nextRetry
}

var ErrEndedAtOnce = errors.New("watch ended at once")

// outcome says what to do after an attempt, and logs why if the lane ends.
func (r *reflector) outcome(a attempt) outcome {
	l, status := r.lane, a.status()
	if uncachable(a.err) && (a.relisting || !l.Synced()) {
		l.Log.Error("Stopped lane, an object is too large or too deep to be cached, so its requests are passed through",
			"err", a.err, "retryIn", l.lanes.quarantineFor)
		l.Filling.fail(false)
		return outcome{next: nextQuarantine, wait: l.lanes.quarantineFor}
	}
	if errors.Is(a.err, errNoRoom) {
		l.Log.Error("Stopped lane, memory is full, so its requests are passed through", "retryIn", memoryQuarantine)
		l.Filling.fail(false)
		return outcome{next: nextQuarantine, wait: memoryQuarantine}
	}
	if a.err == nil && l.doubtful(a.began) {
		l.outdated.Store(true)
	}
	if l.outdated.Load() {
		l.Log.Info("Stopped lane, the resource's definition changed")
		return outcome{next: nextStop}
	}
	if status != nil && status.Code == http.StatusNotFound {
		l.Log.Info("Stopped lane, upstream does not serve the resource")
		return outcome{next: nextStop}
	}
	if time.Since(a.began) > 10*time.Second || l.Cache.Progress() > a.progress {
		r.backoff = minBackoff
	}
	if a.err == nil && time.Since(a.began) > time.Second {
		return outcome{next: nextResume}
	}
	return outcome{next: nextRetry, wait: r.retryIn(a, status), err: cmp.Or(a.err, ErrEndedAtOnce)}
}

// retryIn is how long the reflector waits before it tries again.
func (r *reflector) retryIn(a attempt, status *statusError) time.Duration {
	if r.relist && !a.relisting {
		return rand.N(minBackoff) // upstream answers, and clients' state is old until it has been listed
	}
	wait := r.backoff + rand.N(r.backoff)
	if status != nil && status.retryAfter > wait {
		wait = status.retryAfter + rand.N(r.backoff)
	}
	return wait
}

// uncachable reports whether err is of an object that framing has no room for. Only a list proves
// that there is such an object: one that a watch brings may be gone when the collection is listed.
func uncachable(err error) bool {
	return errors.Is(err, framing.ErrTooLong) || errors.Is(err, framing.ErrTooDeep)
}

// hangs reports whether err is of an upstream that answers, but not as it should. If there are
// several kube-apiservers, another one may work.
func hangs(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.Code >= http.StatusInternalServerError || errors.Is(err, ErrSilent) || errors.Is(err, errBehind) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) // the last: see lane.breakWatch
}
