package request

import (
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ImpersonatePrefix is the common prefix of the headers with which one user acts as another.
const ImpersonatePrefix = "Impersonate-"

// UpgradeType returns the protocol to which the client asks to upgrade, or "".
func UpgradeType(x *exchange.Exchange) string {
	if x.Protocol != exchange.HTTP11 || x.Close || !httpguts.HeaderValuesContainsToken(x.Header.All("Connection"), "upgrade") {
		return ""
	}
	return x.Header.Get("Upgrade")
}

// defaultPorts are the ports that URLs leave out.
var defaultPorts = map[string]string{"http": "80", "https": "443"}

// SameOrigin reports whether origin is the origin of a page that was fetched with scheme, http or
// https, and with this Host header. The port is the client's view of it. Behind kubectl port-forward
// it differs from the port of this process.
func SameOrigin(origin, scheme, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == scheme && u.Host != "" && withPort(u.Host, scheme) == withPort(host, scheme)
}

// withPort returns hostport in lower case, and adds the scheme's port if there is none.
func withPort(hostport, scheme string) string {
	if _, port, err := net.SplitHostPort(hostport); err != nil || port == "" {
		hostport = net.JoinHostPort(strings.Trim(strings.TrimSuffix(hostport, ":"), "[]"), defaultPorts[scheme])
	}
	return strings.ToLower(hostport)
}

// ownOrigin reports whether origin is that of a page which x's own port serves.
func ownOrigin(x *exchange.Exchange, origin string) bool {
	scheme := "http"
	if x.Conn.Secure() {
		scheme = "https"
	}
	return SameOrigin(origin, scheme, x.Header.Get("Host"))
}
