package main

import (
	"net/http"
	"strings"
)

// roundTripper is a func that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// observe counts the requests that go to next, and notes failures.
func (r *report) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if res := r.byPath[req.URL.Path]; res != nil {
			r.count(res.counter(req))
		}
		resp, err := next.RoundTrip(req)
		switch {
		case err != nil:
			r.fail("%s: %v", req.URL, err)
		case resp.StatusCode != http.StatusOK:
			r.fail("%s: %s", req.URL, resp.Status)
		}
		return resp, err
	})
}

// counter returns the count of requests like req.
func (res *resource) counter(req *http.Request) *int {
	query := req.URL.Query()
	switch {
	case query.Get("watch") != "" && query.Get("sendInitialEvents") == "true":
		return &res.WatchLists
	case query.Get("watch") != "":
		return &res.Watches
	case query.Get("resourceVersionMatch") == "Exact":
		return &res.Checks
	}
	return &res.Lists
}

// withoutProtobuf makes the metadata client, which always prefers protobuf, ask for JSON alone, as
// clients in other languages do.
func withoutProtobuf(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		var accepted []string
		for clause := range strings.SplitSeq(req.Header.Get("Accept"), ",") {
			if !strings.Contains(clause, "protobuf") {
				accepted = append(accepted, clause)
			}
		}
		req.Header.Set("Accept", strings.Join(accepted, ","))
		return next.RoundTrip(req)
	})
}
