package auth

import (
	"crypto/x509"
	"slices"
	"strings"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// FrontProxies are servers that authenticate their clients and name them in headers, as with
// kube-apiserver's --requestheader flags (k8s.io/apiserver
// pkg/authentication/request/headerrequest). The zero value trusts no front proxy. Its fields are
// immutable.
type FrontProxies struct {
	cas           *clientCAs // sign their certificates
	names         []string   // common names that they may have; none is any
	userHeaders   []string   // the first that is not empty names the user
	uidHeaders    []string   // likewise
	groupHeaders  []string   // all of them count
	extraPrefixes []string   // of headers; the rest of the name is an extra's key
}

// trusts reports whether the certificates are a front proxy's.
func (p *FrontProxies) trusts(certificates []*x509.Certificate) (*verifiedCertificate, bool) {
	v, ok := p.cas.verify(certificates)
	return v, ok && (len(p.names) == 0 || slices.Contains(p.names, certificates[0].Subject.CommonName))
}

// user returns the user that a front proxy names; nil if it names none. It keeps nothing of the
// rest of the head.
func (p *FrontProxies) user(h exchange.Header) *UserInfo {
	name := firstValue(h, p.userHeaders)
	if name == "" {
		return nil
	}
	user := &UserInfo{Name: name, UID: firstValue(h, p.uidHeaders)}
	for _, header := range p.groupHeaders {
		for _, group := range h.All(header) {
			if group != "" {
				user.Groups = append(user.Groups, strings.Clone(group))
			}
		}
	}
	for _, prefix := range p.extraPrefixes {
		for _, f := range h {
			if !f.HasPrefix(prefix) {
				continue
			}
			if user.Extra == nil {
				user.Extra = make(map[string][]string)
			}
			key := unescapeExtraKey(strings.Clone(f.Name[len(prefix):]))
			user.Extra[key] = append(user.Extra[key], strings.Clone(f.Value))
		}
	}
	user.addAuthenticated()
	return user
}

// firstValue returns the first value of the first header that is not empty.
func firstValue(h exchange.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return strings.Clone(v)
		}
	}
	return ""
}

// SpeaksBy reports whether a front proxy names its client in a header of this name. Such headers
// are accepted from front proxies only. They are never forwarded, because kube-apiserver may take
// this proxy for a front proxy.
func (p *FrontProxies) SpeaksBy(header string) bool {
	is := func(name string) bool { return exchange.SameName(header, name) }
	begins := func(prefix string) bool { return exchange.NameHasPrefix(header, prefix) }
	return begins("X-Remote-") ||
		slices.ContainsFunc(p.userHeaders, is) || slices.ContainsFunc(p.uidHeaders, is) || slices.ContainsFunc(p.groupHeaders, is) ||
		slices.ContainsFunc(p.extraPrefixes, begins)
}
