package auth

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKnownTokens: a token is known for a while after kube-apiserver has accepted it, and until
// kube-apiserver refuses it.
func TestKnownTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKnownTokens()
		f := func(id Identity, method string, code int, want bool) {
			t.Helper()
			k.Answered(id, method, code)
			if got := k.Known(id); got != want {
				t.Errorf("%s after %s %d: %v", id.Token, method, code, got)
			}
		}
		f(byToken("a"), "GET", 404, false)
		f(byToken("a"), "GET", 400, false)
		f(byToken("a"), "OPTIONS", 204, false)
		f(byToken("a"), "GET", 503, false)
		f(byToken("a"), "GET", 401, false)
		f(byToken("a"), "GET", 403, true)
		f(byToken("a"), "GET", 500, true)
		f(byToken("a"), "GET", 401, false)
		f(byToken("a"), "POST", 201, true)
		f(byToken(""), "GET", 200, false)
		f(Identity{}, "GET", 200, false)
		f(byCertificate("jane"), "GET", 200, false)
		time.Sleep(knownFor - 1)
		f(byToken("b"), "GET", 200, true)
		f(byToken("a"), "GET", 500, true)
		time.Sleep(time.Nanosecond)
		f(byToken("a"), "GET", 500, false)
		for i := range maxKnown {
			k.Answered(byToken(fmt.Sprint(i)), "GET", 200)
		}
		if k.Known(byToken("b")) || !k.Known(byToken("0")) || k.accepted.Len() != maxKnown {
			t.Errorf("%d tokens are known, and not the last ones", k.accepted.Len())
		}
		for i := range maxKnown { // one token, in any number of spellings
			space := strings.NewReplacer("0", "\t", "1", "\v").Replace(fmt.Sprintf("%b", i))
			k.Answered(byToken(spellings[0]+space), "GET", 200)
		}
		if !k.Known(byToken("2")) || !k.Known(byToken(spellings[0])) || k.accepted.Len() != maxKnown {
			t.Error("the spellings of a token take the places of others")
		}
	})
}
