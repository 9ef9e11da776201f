package proxy

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Of a token no more is shown than the name of the service account that it is for.
func TestShownName(t *testing.T) {
	jwt := func(payload string) string {
		return "eyJhbGciOiJub25lIn0." + strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(payload)), "=") + ".c2ln"
	}
	for _, c := range []struct {
		id   identity
		want string
	}{
		{identity{}, "(anonymous)"},
		{identity{kind: kindOwn}, "(own)"},
		{identity{kind: kindCertificate, user: &userInfo{name: "alice"}}, "alice"},
		{identity{kind: kindToken, token: "secret"}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":"system:serviceaccount:kube-system:deployer"}`)}, "system:serviceaccount:kube-system:deployer"},
		{identity{kind: kindToken, token: jwt(`{"sub":"alice@example.com"}`)}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":"system:serviceaccount:x"}`)}, "(token)"},
		{identity{kind: kindToken, token: jwt(`{"sub":`)}, "(token)"},
		{identity{kind: kindToken, token: "a.!.c"}, "(token)"},
	} {
		if got := c.id.shownName(); got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

// Nothing of a token is shown but the name of a service account.
func FuzzTokenSubject(f *testing.F) {
	f.Add("a.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c")
	f.Fuzz(func(t *testing.T, token string) {
		name, ok := tokenSubject(token)
		if _, _, account := serviceAccount(name); ok != account || !ok && name != "" {
			t.Errorf("%q: %q, %v", token, name, ok)
		}
	})
}
