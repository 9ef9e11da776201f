package seed

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// siblingsOf returns siblings in front of a kube-apiserver that answers with code and text.
func siblingsOf(t *testing.T, opts *Options, code int, text string) (*Siblings, *proxytest.FakeUpstream[auth.Identity]) {
	up := &proxytest.FakeUpstream[auth.Identity]{Answer: func(auth.Identity, string, []byte) (int, string, error) {
		return code, text, nil
	}}
	s := New(opts, nil, "", nil, up, func(http.Header) {}, metrics.NewSet(), proxytest.Guard())
	t.Cleanup(s.End)
	return s, up
}

// The cluster's identity is asked for once by all that want it at the same time, and remembered. An
// answer without a uid is no identity.
func TestIdentity(t *testing.T) {
	s, up := siblingsOf(t, &Options{}, 200, `{"metadata":{"uid":"u1"}}`)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := s.Identity(t.Context(), upstream.Build{}); err != nil || !strings.HasPrefix(got, "1 ") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	asked := up.Count()
	one, _ := s.Identity(t.Context(), upstream.Build{})
	if up.Count() != asked {
		t.Error("a known identity was asked for")
	}
	other, _ := siblingsOf(t, &Options{}, 200, `{"metadata":{"uid":"u2"}}`)
	if two, _ := other.Identity(t.Context(), upstream.Build{}); one == two || strings.Contains(one, "u1") {
		t.Errorf("two clusters are %q and %q", one, two)
	}
	for _, tc := range []struct {
		code int
		text string
	}{{403, `{"metadata":{"uid":"u1"}}`}, {200, `{}`}, {200, ``}, {200, `[`}} {
		s, up := siblingsOf(t, &Options{}, tc.code, tc.text)
		var f *Failure
		for range 2 {
			if got, err := s.Identity(t.Context(), upstream.Build{}); !errors.As(err, &f) || f.Reason != Unidentified {
				t.Errorf("%d %s: got %q, %v", tc.code, tc.text, got, err)
			}
		}
		if up.Count() != 2 {
			t.Errorf("%d %s: a failure was remembered", tc.code, tc.text)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s, _ = siblingsOf(t, &Options{}, 200, `{"metadata":{"uid":"u1"}}`)
	if got, err := s.Identity(gone, upstream.Build{}); err == nil {
		t.Errorf("a caller that has left got %q", got)
	}
}

// The header of a sibling is any text.
func FuzzDiffers(f *testing.F) {
	const own = protocol + " c d"
	for _, s := range []string{"", "1", own, "1 a b", "2 a b", "1  ", "1 a b c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		failure := differs(own, s)
		if (failure == nil) != (s == own) {
			t.Errorf("%q: %v", s, failure)
		}
		if failure != nil && failure.Reason != OtherVersion && failure.Reason != OtherCluster && failure.Reason != OtherBuild {
			t.Errorf("%q: %v", s, failure)
		}
	})
}
