package proxy

import (
	"net"
	"strings"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// local reports whether a request to a port on loopback comes from a program on this host, or from
// a page of the same port. It rejects requests from other pages in a browser on this host. Such a
// page can make its own name resolve to 127.0.0.1, or make the browser send requests to 127.0.0.1.
// Some of these requests have an Origin (fetch, a form), others none (an image, a fetch in mode
// no-cors, a link). Browsers since 2023 send Sec-Fetch-Site, the relation of the page to the port
// (https://www.w3.org/TR/fetch-metadata/): cross-site, same-site for another port of this host,
// same-origin, or none for an address that the user has typed. Programs send neither header.
//
// values returns the values of a header. hosts are the hosts that the request names: the Host
// header, and the host of a target in absolute form.
func local(values func(name string) []string, hosts ...string) bool {
	for _, host := range hosts {
		if !localHost(host) {
			return false
		}
	}
	for _, site := range values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	for _, origin := range values("Origin") {
		if !request.SameOrigin(origin, "http", hosts[0]) {
			return false
		}
	}
	return true
}

// localExchange is local for a request of the insecure port.
func localExchange(x *exchange.Exchange) bool {
	target, _ := exchange.CutTarget(x.Target)
	_, host, user := strings.Cut(target.Authority, "@")
	if !user {
		host = target.Authority
	}
	return local(x.Header.All, x.Header.Get("Host"), host)
}

// localHost reports whether hostport names this host's loopback or is empty.
func localHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback() || hostport == ""
}
