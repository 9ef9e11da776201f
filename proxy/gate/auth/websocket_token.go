package auth

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// bearerProtocol begins the subprotocol with which a browser, which can set no Authorization, sends
// its token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// websocketToken is the token among the subprotocols of a WebSocket (k8s.io/apiserver
// pkg/authentication/request/websocket).
type websocketToken struct {
	token string   // "" for none
	given bool     // there is a subprotocol for a token
	bad   bool     // kube-apiserver would reject it
	rest  []string // the other subprotocols
}

// websocketTokenOf returns the token among the subprotocols of x.
func websocketTokenOf(x *exchange.Exchange) (t websocketToken) {
	if !websocket.Asked(x) {
		return t
	}
	for _, list := range x.Header.All(websocket.ProtocolHeader) {
		for protocol := range strings.SplitSeq(list, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, bearerProtocol)
			if !ok {
				t.rest = append(t.rest, protocol)
				continue
			}
			token, err := base64.RawURLEncoding.DecodeString(encoded)
			// An Authorization header holds the token as it is. kube-apiserver issues no others.
			odd := bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
			t.bad = t.bad || t.given || err != nil || odd
			t.token, t.given = string(token), true
		}
	}
	t.bad = t.bad || t.token != "" && len(t.rest) == 0 // nothing would be left to choose
	return t
}
