package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ProtocolHeader is the header with a client's subprotocols, separated by commas.
const ProtocolHeader = "Sec-WebSocket-Protocol"

// Asked reports whether a request asks for a WebSocket in kube-apiserver's eyes
// (k8s.io/streaming/pkg/httpstream/wsstream, IsWebSocketRequest).
func Asked(x *exchange.Exchange) bool {
	if x.Protocol != exchange.HTTP11 || !strings.EqualFold(x.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, f := range x.Header {
		if f.Is("Connection") && mentionsUpgrade(f.Value) {
			return true
		}
	}
	return false
}

func mentionsUpgrade(connection string) bool {
	return strings.Contains(strings.ToLower(connection), "upgrade")
}

// Handshake answers the handshake of x as golang.org/x/net/websocket does: with a bare 101, or with
// a bare refusal that ends the connection. It reports whether the handshake was accepted. x is a GET
// that [Asked].
func Handshake(x *exchange.Exchange) (accepted bool) {
	r := &x.Response
	r.Bare = true
	if status, reason := refusal(x); status != 0 {
		r.Status, r.Close = status, true
		if reason != "" {
			r.Body = exchange.BodySlices{[]byte(reason)}
		}
		return false
	}
	r.Status = http.StatusSwitchingProtocols
	r.Header.Add("Upgrade", "websocket")
	r.Header.Add("Connection", "Upgrade")
	r.Header.Add("Sec-WebSocket-Accept", acceptKey(x.Header.Get("Sec-WebSocket-Key")))
	if chosen := subprotocols(x); len(chosen) > 0 {
		r.Header.Add(ProtocolHeader, chosen[0])
	}
	return true
}

// refusal returns the status and the body with which a handshake is refused; 0 for a good one. The
// words are those of golang.org/x/net/websocket.
func refusal(x *exchange.Exchange) (status int, reason string) {
	switch {
	case !mentionsUpgrade(x.Header.Get("Connection")): // a later Connection does
		return http.StatusBadRequest, "not websocket protocol"
	case x.Header.Get("Sec-WebSocket-Key") == "":
		return http.StatusBadRequest, "mismatch challenge/response"
	case x.Header.Get("Sec-WebSocket-Version") != "13":
		x.Response.Header.Add("Sec-WebSocket-Version", "13")
		return http.StatusBadRequest, "missing or bad WebSocket Version"
	}
	scheme := "ws"
	if x.Conn.Secure() {
		scheme = "wss"
	}
	if _, err := url.ParseRequestURI(scheme + "://" + x.Header.Get("Host") + x.Target); err != nil {
		return http.StatusBadRequest, err.Error()
	}
	if _, err := url.ParseRequestURI(x.Header.Get("Origin")); err != nil {
		return http.StatusForbidden, ""
	}
	if len(subprotocols(x)) > 1 {
		return http.StatusBadRequest, ""
	}
	return 0, ""
}

// subprotocols returns the subprotocols of the first header that has them; nil for none.
func subprotocols(x *exchange.Exchange) []string {
	list := strings.TrimSpace(x.Header.Get(ProtocolHeader))
	if list == "" {
		return nil
	}
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// acceptKey proves that the server has read the client's key (RFC 6455, section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
