package fairness

import (
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/auth"
)

func TestFlowOf(t *testing.T) {
	from := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	alice := func(kind auth.Kind) auth.Identity {
		return auth.Identity{Kind: kind, User: &auth.UserInfo{Name: "alice"}}
	}
	for name, c := range map[string]struct {
		a, b Flow
		same bool
	}{
		"a token, twice": {FlowOf(auth.Identity{Kind: auth.KindToken, Token: "x"}, from(1)),
			FlowOf(auth.Identity{Kind: auth.KindToken, Token: "x"}, from(2)), true},
		"two tokens": {FlowOf(auth.Identity{Kind: auth.KindToken, Token: "x"}, from(1)),
			FlowOf(auth.Identity{Kind: auth.KindToken, Token: "y"}, from(1)), false},
		"a user, by two ways": {FlowOf(alice(auth.KindCertificate), from(1)),
			FlowOf(alice(auth.KindFrontProxy), from(2)), true},
		"two users of a front": {FlowOf(alice(auth.KindFrontProxy), from(1)),
			FlowOf(auth.Identity{Kind: auth.KindFrontProxy, User: &auth.UserInfo{Name: "bob"}}, from(1)), false},
		"two insecure connections": {FlowOf(auth.Identity{Kind: auth.KindOwn}, from(1)),
			FlowOf(auth.Identity{Kind: auth.KindOwn}, from(2)), false},
		"an insecure connection": {FlowOf(auth.Identity{Kind: auth.KindOwn}, from(1)),
			FlowOf(auth.Identity{Kind: auth.KindOwn}, from(1)), true},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: the same %t, want %t", name, c.a == c.b, c.same)
		}
	}
}
