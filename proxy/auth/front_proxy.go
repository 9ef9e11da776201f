package auth

import (
	"crypto/x509"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/request"
)

// FrontProxies are servers that have authenticated their clients and say in headers who those are:
// kube-apiserver's --requestheader flags (k8s.io/apiserver
// pkg/authentication/request/headerrequest). The zero value trusts nobody. Its fields are
// immutable.
type FrontProxies struct {
	ca            *authorities // signs their certificates
	names         []string     // common names that they may have; none is any
	userHeaders   []string     // the first that is there and not empty names the user
	uidHeaders    []string     // likewise
	groupHeaders  []string     // all of them
	extraPrefixes []string     // what follows is an extra's key
}

// trusts reports whether the certificates are a front proxy's, and who vouches for it.
func (p *FrontProxies) trusts(certificates []*x509.Certificate) (*voucher, bool) {
	v, ok := p.ca.verify(certificates)
	return v, ok && (len(p.names) == 0 || slices.Contains(p.names, certificates[0].Subject.CommonName))
}

// user returns the user whom a front proxy names, nil if none.
func (p *FrontProxies) user(h *fasthttp.RequestHeader) *UserInfo {
	name := firstValue(h, p.userHeaders)
	if name == "" {
		return nil
	}
	user := &UserInfo{Name: name, UID: firstValue(h, p.uidHeaders)}
	for _, header := range p.groupHeaders {
		for k, v := range h.All() {
			if request.HeaderIs(k, header) && len(v) > 0 {
				user.Groups = append(user.Groups, string(v))
			}
		}
	}
	for _, prefix := range p.extraPrefixes {
		for k, v := range h.All() {
			if !request.HasPrefixFold(string(k), prefix) {
				continue
			}
			if user.Extra == nil {
				user.Extra = make(map[string][]string)
			}
			key := unescapeExtraKey(string(k[len(prefix):]))
			user.Extra[key] = append(user.Extra[key], string(v))
		}
	}
	user.addAuthenticated()
	return user
}

// firstValue returns the first line of the first of the headers that is not empty.
func firstValue(h *fasthttp.RequestHeader, names []string) string {
	for _, name := range names {
		if v, _ := request.FirstHeader(h, name); v != "" {
			return v
		}
	}
	return ""
}

// SpeaksBy reports whether a header is one by which a front proxy says who its client is. Such
// headers are from nobody else, and they end here: kube-apiserver may take us for a front proxy.
func (p *FrontProxies) SpeaksBy(header string) bool {
	is := func(name string) bool { return request.HeaderIs([]byte(header), name) }
	begins := func(prefix string) bool { return request.HasPrefixFold(header, prefix) }
	return begins("X-Remote-") ||
		slices.ContainsFunc(p.userHeaders, is) || slices.ContainsFunc(p.uidHeaders, is) || slices.ContainsFunc(p.groupHeaders, is) ||
		slices.ContainsFunc(p.extraPrefixes, begins)
}
