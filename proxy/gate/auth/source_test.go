package auth

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// spellings are one token to kube-apiserver: it ignores white space, but for the payload's, and the bits behind the
// last byte of each part.
var spellings = []string{
	"eyJhIjoxfQ.eyJzdWIiOiJqYW5lIn0.c2lnbmVk", "eyJhIjox\tfQ.eyJzdWIiOiJqYW5lIn0.c2lnbmVk",
	"eyJhIjoxfQ.eyJzdWIiOiJqYW5lIn0.c2ln\tbm\u00a0Vk", "eyJhIjoxfR.eyJzdWIiOiJqYW5lIn1.c2lnbmVk",
}

// A token counts for its address until kube-apiserver has accepted it, and for its owner after that.
// No address counts for a user.
func TestSource(t *testing.T) {
	tokens := NewKnownTokens()
	a := NewAuthorizer(nil, tokens, &Options{}, false, NewMetrics(metrics.NewSet()), proxytest.Guard())
	from := netip.MustParsePrefix("10.1.2.3/32")
	stranger := account.Source{Name: "10.1.2.3", Stranger: true}
	service := Identity{Kind: KindToken, From: from, Token: "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c"}
	opaque, other := Identity{Kind: KindToken, From: from, Token: "opaque"}, Identity{Kind: KindToken, From: from, Token: "other"}
	for _, id := range []Identity{service, opaque, {Kind: KindAnonymous, From: from}} {
		if got := a.Source(id); got != stranger {
			t.Errorf("%s: %v, want a stranger", id, got)
		}
	}
	for _, id := range []Identity{service, opaque, other} {
		tokens.Answered(id, http.MethodGet, http.StatusOK)
	}
	if got := a.Source(service); got != (account.Source{Name: "system:serviceaccount:a:b"}) {
		t.Errorf("a service account counts for %v", got)
	}
	if a.Source(opaque) == a.Source(other) || a.Source(opaque).Stranger {
		t.Error("two tokens are one source")
	}
	for _, spelling := range spellings {
		id := Identity{Kind: KindToken, From: from, Token: spelling}
		tokens.Answered(id, http.MethodGet, http.StatusOK)
		if got := a.Source(id); got != a.Source(Identity{Kind: KindToken, Token: spellings[0]}) {
			t.Errorf("%q counts for %v", spelling, got)
		}
	}
	if got := a.Source(Identity{Kind: KindCertificate, From: from, User: &UserInfo{Name: "alice"}}); got != (account.Source{Name: "alice"}) {
		t.Errorf("a user counts for %v", got)
	}
	acting := Identity{Kind: KindCertificate, User: &UserInfo{Name: "alice"}, By: &UserInfo{Name: "bob"}}
	if got := a.Source(acting); got != (account.Source{Name: "bob"}) {
		t.Errorf("a user that acts as another counts for %v", got)
	}
}

// A user has the groups of its certificate, and an accepted token of a service account those that it implies.
func TestHasGroup(t *testing.T) {
	tokens := NewKnownTokens()
	a := NewAuthorizer(nil, tokens, &Options{}, false, NewMetrics(metrics.NewSet()), proxytest.Guard())
	admin := Identity{Kind: KindCertificate, User: &UserInfo{Name: "admin", Groups: []string{"system:masters"}}}
	service := Identity{Kind: KindToken, Token: "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c"}
	f := func(id Identity, group string, want bool) {
		t.Helper()
		if got := a.HasGroup(id, []string{"none", group}); got != want {
			t.Errorf("%s in %s: %t", id, group, got)
		}
	}
	f(admin, "system:masters", true)
	f(admin, "system:nodes", false)
	f(service, "system:serviceaccounts:a", false)
	tokens.Answered(service, http.MethodGet, http.StatusOK)
	f(service, "system:serviceaccounts:a", true)
	f(service, "system:serviceaccounts", true)
	f(service, "system:serviceaccounts:b", false)
	f(Identity{Kind: KindOwn}, "system:masters", false)
}
