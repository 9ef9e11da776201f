package seed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Search goes from sibling to sibling until one has filled a lane. It is used by one goroutine:
//
//	for search.More() {
//		resp, err := search.Ask(…)  // or whatever fails later
//		search.Refuse(err)
//	}
//	search.Failed(log)
type Search struct {
	siblings *Siblings
	want     identity
	left     []address // not asked yet
	end      time.Time // no sibling is asked after this
	failure  *Failure  // that says most about why there was no seed
}

// searchTimeout is for how long one sibling after the other is asked. One that does not have the
// objects says so within milliseconds. One that sends them may take longer.
const searchTimeout = 8 * time.Second

// Search begins a search for the objects of a lane that a build of kube-apiserver wrote.
func (s *Siblings) Search(ctx context.Context, build upstream.Build) *Search {
	f := &Search{
		siblings: s,
		end:      time.Now().Add(searchTimeout),
		failure:  fail(NoSibling, "--seed-from has no other address that answers"),
	}
	ctx, cancel := context.WithDeadline(ctx, f.end)
	defer cancel()
	want, err := s.Identity(ctx, build)
	if err != nil {
		f.Refuse(err)
		return f
	}
	f.want = identity(want)
	if f.left, err = s.addresses(ctx); err != nil {
		f.Refuse(err)
	}
	return f
}

// More reports whether another sibling may be asked.
func (f *Search) More() bool { return len(f.left) > 0 && time.Now().Before(f.end) }

// Ask requests the objects of a collection from the next sibling. The answer has no end of its own:
// the caller reads the initial events and closes it. ctx lasts for the body too.
func (f *Search) Ask(ctx context.Context, path, query, accept string) (*http.Response, error) {
	to := f.left[0]
	f.left = f.left[1:]
	transport, err := f.siblings.transport(to.host)
	if err != nil {
		return nil, &Failure{Unusable, err}
	}
	began := time.Now()
	resp, failure := f.siblings.ask(ctx, transport, to.addr, &url.URL{Path: path, RawQuery: query}, accept, f.want)
	if failure == nil {
		return resp, nil
	}
	if failure.Reason == NoSibling && ctx.Err() == nil && time.Since(began) >= dialTimeout {
		f.siblings.setSilent(to.addr)
	}
	return nil, &Failure{failure.Reason, fmt.Errorf("sibling %s: %w", to.addr, failure.Err)}
}

// Refuse notes why the last sibling has not filled the lane. An error that is no *Failure counts as
// Broken. Of several failures one that is not usual is kept.
func (f *Search) Refuse(err error) {
	if !f.failure.usual() {
		return
	}
	var next *Failure
	if !errors.As(err, &next) {
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
