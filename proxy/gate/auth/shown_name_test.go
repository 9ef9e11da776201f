package auth

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Only the name of a token's service account is shown, and nothing else of the token.
func TestShownName(t *testing.T) {
	jwt := func(payload string) string {
		return "eyJhbGciOiJub25lIn0." + strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(payload)), "=") +
			".c2ln"
	}
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{Identity{}, "(anonymous)"},
		{Identity{Kind: KindOwn}, "(own)"},
		{Identity{Kind: KindCertificate, User: &UserInfo{Name: "alice"}}, "alice"},
		{Identity{Kind: KindToken, Token: "secret"}, "(token)"},
		{Identity{Kind: KindToken, Token: jwt(`{"sub":"system:serviceaccount:kube-system:deployer"}`)},
			"system:serviceaccount:kube-system:deployer"},
		{Identity{Kind: KindToken, Token: jwt(`{"sub":"alice@example.com"}`)}, "(token)"},
		{Identity{Kind: KindToken, Token: jwt(`{"sub":"system:serviceaccount:x"}`)}, "(token)"},
		{Identity{Kind: KindToken, Token: jwt(`{"sub":`)}, "(token)"},
		{Identity{Kind: KindToken, Token: "a.!.c"}, "(token)"},
	} {
		if got := c.id.ShownName(); got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

// Of any token, only the name of a service account is shown.
func FuzzTokenSubject(f *testing.F) {
	f.Add("a.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c")
	f.Fuzz(func(t *testing.T, token string) {
		name, ok := TokenSubject(token)
		if _, _, account := serviceAccount(name); ok != account || !ok && name != "" {
			t.Errorf("%q: %q, %v", token, name, ok)
		}
	})
}
