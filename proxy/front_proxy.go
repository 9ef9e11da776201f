package proxy

import (
	"crypto/x509"
	"slices"

	"github.com/valyala/fasthttp"
)

// frontProxies are servers that have authenticated their clients and say in headers who those are: kube-apiserver's --requestheader flags
// (k8s.io/apiserver pkg/authentication/request/headerrequest). The zero value trusts nobody. Its fields are immutable.
type frontProxies struct {
	ca            *authorities // signs their certificates
	names         []string     // common names that they may have; none is any
	userHeaders   []string     // the first that is there and not empty names the user
	uidHeaders    []string     // likewise
	groupHeaders  []string     // all of them
	extraPrefixes []string     // what follows is an extra's key
}

// trusts reports whether the certificates are a front proxy's, and who vouches for it.
func (p *frontProxies) trusts(certificates []*x509.Certificate) (*voucher, bool) {
	v, ok := p.ca.verify(certificates)
	return v, ok && (len(p.names) == 0 || slices.Contains(p.names, certificates[0].Subject.CommonName))
}

// user returns the user whom a front proxy names, nil if none.
func (p *frontProxies) user(h *fasthttp.RequestHeader) *userInfo {
	name := firstValue(h, p.userHeaders)
	if name == "" {
		return nil
	}
	user := &userInfo{name: name, uid: firstValue(h, p.uidHeaders)}
	for _, header := range p.groupHeaders {
		for k, v := range h.All() {
			if headerIs(k, header) && len(v) > 0 {
				user.groups = append(user.groups, string(v))
			}
		}
	}
	for _, prefix := range p.extraPrefixes {
		for k, v := range h.All() {
			if !hasPrefixFold(string(k), prefix) {
				continue
			}
			if user.extra == nil {
				user.extra = make(map[string][]string)
			}
			key := unescapeExtraKey(string(k[len(prefix):]))
			user.extra[key] = append(user.extra[key], string(v))
		}
	}
	user.addAuthenticated()
	return user
}

// firstValue returns the first line of the first of the headers that is not empty.
func firstValue(h *fasthttp.RequestHeader, names []string) string {
	for _, name := range names {
		if v, _ := firstHeader(h, name); v != "" {
			return v
		}
	}
	return ""
}

// speaksBy reports whether a header is one by which a front proxy says who its client is. Such headers are from nobody else,
// and they end here: kube-apiserver may take us for a front proxy.
func (p *frontProxies) speaksBy(header string) bool {
	is := func(name string) bool { return headerIs([]byte(header), name) }
	begins := func(prefix string) bool { return hasPrefixFold(header, prefix) }
	return begins("X-Remote-") ||
		slices.ContainsFunc(p.userHeaders, is) || slices.ContainsFunc(p.uidHeaders, is) || slices.ContainsFunc(p.groupHeaders, is) ||
		slices.ContainsFunc(p.extraPrefixes, begins)
}
