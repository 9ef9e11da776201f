package auth

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// TestReasons: with an audit log, a decision has the reason that came with it, also from memory.
// Without an audit log, no reason is kept.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := defaultOptions()
		list := parse(t, "/api/v1/pods")
		long := strings.Repeat("é", maxReviewBytes/8)
		const bound = `,"reason":"RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"j\u00fcrgen\""`
		for reason, want := range map[string]string{
			bound:                      `RBAC: allowed by RoleBinding "b/a" of Role "r" to User "jürgen"`,
			``:                         ``,
			`,"reason":""`:             ``,
			`,"reason":"` + long + `"`: long[:maxReason] + "...TRUNCATED",
		} {
			for kind, id := range map[string]Identity{"SelfSubjectAccessReview": byToken("t"),
				"SubjectAccessReview": byCertificate("jane")} {
				for allowed, v := range map[string]outcome{"true": allowed, "false": denied} {
					for _, reasons := range []bool{false, true} {
						answer := `{"kind":"` + kind + `","status":{"allowed":` + allowed + reason + `}}`
						up := &proxytest.FakeUpstream[Identity]{
							Answer: func(Identity, string, []byte) (int, string, error) { return 201, answer, nil },
						}
						a := NewAuthorizer(up, NewKnownTokens(), &opts, reasons, NewMetrics(metrics.NewSet()), proxytest.Guard())
						for range 2 {
							d := a.Authorize(t.Context(), id, list)
							if d.outcome != v || reasons && d.Reason() != want ||
								!reasons && d.reason != (Decision{}).reason {
								t.Errorf("%s of %s, audit log %v: got %d because %.100q, want %d because %.100q",
									allowed, kind, reasons, d.outcome, d.Reason(), v, want)
							}
						}
					}
				}
			}
		}
	})
}

// warner is a kube-apiserver that says yes, and warns by credential.
type warner map[Kind][]string

func (w warner) DoAs(id Identity, req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("fieldValidation") != "Ignore" {
		return nil, errors.New("may warn about fields")
	}
	kind := "SelfSubjectAccessReview"
	if strings.Contains(req.URL.Path, "/subject") {
		kind = "SubjectAccessReview"
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Warning": w[id.Kind]},
		Body: io.NopCloser(strings.NewReader(`{"kind":"` + kind + `","status":{"allowed":true}}`))}, nil
}

func (w warner) URL(path, query string) *url.URL { return &url.URL{Path: path, RawQuery: query} }

// TestDecisionWarnings: a decision about a token has the Warnings that concern the token, also from
// memory. One about a user has none: what its review brings concerns the proxy.
func TestDecisionWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := parse(t, "/api/v1/pods")
		watch := parse(t, "/api/v1/pods?watch=1&resourceVersion=5")
		long := strings.Repeat("x", maxWarnings)
		for _, sent := range [][]string{nil, {`299 - "one"`}, {`299 - "one"`, `299 a "two"`}, {"a", long}} {
			a := authorizerOf(warner{KindToken: sent, KindOwn: {`299 - "own"`}})
			want := sent
			if slices.Contains(sent, long) {
				want = nil
			}
			for _, req := range []*request.Request{list, list, watch, watch} {
				if d := a.Authorize(t.Context(), byToken("t"), req); !d.Allowed() || !slices.Equal(d.Warnings(), want) {
					t.Errorf("a token: allowed %v, %.100q, want %.100q", d.Allowed(), d.Warnings(), want)
				}
				if d := a.Authorize(t.Context(), byCertificate("jane"), req); !d.Allowed() || d.Warnings() != nil {
					t.Errorf("a user: allowed %v, %q, want none", d.Allowed(), d.Warnings())
				}
			}
			if d := a.Authorize(t.Context(), Identity{Kind: KindOwn}, list); d.Warnings() != nil {
				t.Errorf("the proxy itself: %q, want none", d.Warnings())
			}
		}
	})
}

// A refused token is known to be refused to reads that arrived before its review. Later reads, and those
// of a token that is accepted but may not ask, are not refused here.
func TestUnauthenticated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := parse(t, "/api/v1/pods")
		for code, want := range map[int]bool{http.StatusUnauthorized: true, http.StatusForbidden: false} {
			a := authorizerOf(&proxytest.FakeUpstream[Identity]{
				Answer: func(Identity, string, []byte) (int, string, error) { return code, "", nil },
			})
			for _, fresh := range []bool{true, false} {
				arrived := time.Now()
				d := a.Authorize(t.Context(), byToken("t"), list)
				if d.outcome != denied || d.Unauthenticated(arrived) != (want && fresh) {
					t.Errorf("%d: got %+v for a read that arrived at %v", code, d, arrived)
				}
				time.Sleep(time.Second)
			}
			if d := a.Authorize(t.Context(), byCertificate("jane"), list); d.Unauthenticated(time.Time{}) {
				t.Errorf("%d: a user is without a credential", code)
			}
		}
	})
}
