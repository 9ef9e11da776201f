package auth

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// TestReasons: with an audit log, a decision has the reason that came with it, also from memory.
// Without an audit log, no reason is kept.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := defaultOptions()
		list := proxytest.MustParse(t, request.Parse, "/api/v1/pods")
		long := strings.Repeat("é", maxReviewBytes/8)
		for reason, want := range map[string]string{
			`,"reason":"RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"j\u00fcrgen\""`: `RBAC: allowed by RoleBinding "b/a" of Role "r" to User "jürgen"`,
			``:                         ``,
			`,"reason":""`:             ``,
			`,"reason":"` + long + `"`: long[:maxReason] + "...TRUNCATED",
		} {
			for kind, id := range map[string]Identity{"SelfSubjectAccessReview": byToken("t"), "SubjectAccessReview": byCertificate("jane")} {
				for allowed, v := range map[string]outcome{"true": allowed, "false": denied} {
					for _, reasons := range []bool{false, true} {
						a := NewAuthorizer(&proxytest.FakeUpstream[Identity]{Answer: func(Identity, string, []byte) (int, string, error) {
							return 201, `{"kind":"` + kind + `","status":{"allowed":` + allowed + reason + `}}`, nil
						}}, NewKnownTokens(), &opts, reasons, slog.New(slog.DiscardHandler))
						for range 2 {
							d := a.Authorize(t.Context(), id, list)
							if d.outcome != v || reasons && d.Reason() != want || !reasons && d.reason != (Decision{}).reason {
								t.Errorf("%s of %s, audit log %v: got %d because %.100q, want %d because %.100q", allowed, kind, reasons, d.outcome, d.Reason(), v, want)
							}
						}
					}
				}
			}
		}
	})
}
