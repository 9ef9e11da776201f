package seed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Search goes from sibling to sibling until one has filled a lane. It is used by one goroutine: Ask
// for as long as there is More, Refuse the error of that or whatever fails later, and then Failed.
type Search struct {
	siblings *Siblings
	want     string    // the identity that the seed must have
	left     []address // not asked yet
	end      time.Time // no sibling is asked after this
	failure  *Failure  // that says most about why there was no seed
}

const (
	// searchTimeout is for how long one sibling after the other is asked. One that does not have the
	// objects says so within milliseconds. One that sends them may take longer.
	searchTimeout = 8 * time.Second
	dialTimeout   = 2 * time.Second
	// answerTimeout is how long one sibling has for the head of its answer. It asks kube-apiserver
	// for a review first.
	answerTimeout = 3 * time.Second
)

// Search begins a search for the objects of a lane that a build of kube-apiserver wrote.
func (s *Siblings) Search(ctx context.Context, build upstream.Build) *Search {
	f := &Search{
		siblings: s,
		end:      time.Now().Add(searchTimeout),
		failure:  Fail(NoSibling, "--seed-from has no other address that answers"),
	}
	ctx, cancel := context.WithDeadline(ctx, f.end)
	defer cancel()
	var err error
	if f.want, err = s.Identity(ctx, build); err == nil {
		f.left, err = s.addresses(ctx)
	}
	if err != nil {
		f.Refuse(err)
	}
	return f
}

// More reports whether another sibling may be asked.
func (f *Search) More() bool { return len(f.left) > 0 && time.Now().Before(f.end) }

// Ask requests the objects of a collection from the next sibling. The answer has no end of its own:
// the caller reads the initial events and closes it. parent lasts for the body too, and ends then.
func (f *Search) Ask(parent context.Context, path, query, accept string) (*http.Response, error) {
	to := f.left[0]
	f.left = f.left[1:]
	transport, err := f.siblings.transport(to.host)
	if err != nil {
		return nil, &Failure{Unusable, err}
	}
	ctx, cancel := context.WithCancel(parent)
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "https", Host: to.addr, Path: path, RawQuery: query},
		Header: http.Header{"Accept": {accept}, request.SeedHeader: {f.want}},
	}).WithContext(ctx)
	f.siblings.via(req.Header)
	late := time.AfterFunc(answerTimeout, cancel)
	resp, err := transport.RoundTrip(req)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("it has not answered within %s", answerTimeout)
	}
	failure := judge(resp, err, f.want)
	if failure == nil {
		return resp, nil
	}
	cancel()
	if err == nil {
		resp.Body.Close()
	}
	return nil, Fail(failure.Reason, "sibling %s: %w", to.addr, failure.Err)
}

// judge returns why the answer to a request is no seed with an identity; nil for a seed. err says
// that there is no answer.
func judge(resp *http.Response, err error, want string) *Failure {
	if err != nil {
		_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
		_, authority := errors.AsType[x509.UnknownAuthorityError](err)
		_, header := errors.AsType[tls.RecordHeaderError](err)
		if certificate || authority || header {
			return &Failure{Certificate, err}
		}
		return &Failure{NoSibling, err}
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPreconditionFailed:
		if failure := differs(want, resp.Header.Get(request.SeedHeader)); failure != nil {
			return failure
		}
		if resp.StatusCode != http.StatusOK {
			return Fail(OtherVersion, "it refuses its own identity")
		}
		return nil
	case http.StatusLoopDetected:
		return Fail(itself, "it is this replica")
	case http.StatusServiceUnavailable:
		return Fail(Unfilled, "it does not have the objects")
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return Fail(Refused, "it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return Fail(OtherVersion, "it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// Refuse notes why the last sibling has not filled the lane. An error that is no *Failure counts as
// Broken. Of several failures one that is not usual is kept.
func (f *Search) Refuse(err error) {
	if !f.failure.usual() {
		return
	}
	next, ok := errors.AsType[*Failure](err)
	if !ok {
		next = &Failure{Broken, err}
	}
	if next.Reason != itself {
		f.failure = next
	}
}

// Failed counts, logs and returns why no sibling has filled the lane.
func (f *Search) Failed(log *slog.Logger) Reason {
	f.siblings.failures.add(log, f.failure)
	return f.failure.Reason
}
