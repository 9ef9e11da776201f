package proxy

import (
	"net"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// local reports whether a request to a port on loopback comes from a program on this host, or from
// a page of that same port, rather than from another page that a browser on this host shows. Such a
// page can make its own name resolve to 127.0.0.1, or have the browser send requests to 127.0.0.1:
// with its Origin (fetch, a form), or without one (an image, a fetch in mode no-cors, a link).
// Browsers since 2023 then say in Sec-Fetch-Site how the page and the port are related
// (https://www.w3.org/TR/fetch-metadata/): cross-site, same-site for another port of this host,
// same-origin, or none for an address that the user has typed. Programs send neither header.
func local(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	host := string(h.Host())
	if !localHost(host) || !localHost(string(ctx.Host())) { // the second is the target's, in absolute form
		return false
	}
	for _, site := range h.PeekAll("Sec-Fetch-Site") {
		if s := string(site); s != "same-origin" && s != "none" {
			return false
		}
	}
	for _, origin := range h.PeekAll("Origin") {
		if !sameOrigin(string(origin), host) {
			return false
		}
	}
	return true
}

// sameOrigin reports whether origin is that of a page which was fetched, without TLS, with this
// Host header. The port is the one that the client knows, which is not ours behind kubectl
// port-forward.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && u.Host != "" && withPort(u.Host) == withPort(host)
}

// withPort returns hostport in lower case, with HTTP's port if it has none.
func withPort(hostport string) string {
	if _, port, err := net.SplitHostPort(hostport); err != nil || port == "" {
		hostport = net.JoinHostPort(strings.Trim(strings.TrimSuffix(hostport, ":"), "[]"), "80")
	}
	return strings.ToLower(hostport)
}

// localHost reports whether hostport names this host's loopback, or nothing.
func localHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback() || hostport == ""
}
