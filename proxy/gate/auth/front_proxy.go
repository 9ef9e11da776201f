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
	cas     *clientCAs // sign their certificates
	names   []string   // common names that they may have; none is any
	headers userHeaders
}

// trusts reports whether the certificates are a front proxy's.
func (p *FrontProxies) trusts(certificates []*x509.Certificate) (*verifiedCertificate, bool) {
	v, ok := p.cas.verify(certificates)
	return v, ok && (len(p.names) == 0 || slices.Contains(p.names, certificates[0].Subject.CommonName))
}

// user returns the user that a front proxy names; nil if it names none.
func (p *FrontProxies) user(h exchange.Header) *UserInfo {
	user := p.headers.read(h)
	if user.Name == "" {
		return nil
	}
	user.Groups = slices.DeleteFunc(user.Groups, func(group string) bool { return group == "" })
	user.addAuthenticated()
	return user
}

// SpeaksBy reports whether a front proxy names its client in a header of this name. Such headers
// are accepted from front proxies only. They are never forwarded, because kube-apiserver may take
// this proxy for a front proxy.
func (p *FrontProxies) SpeaksBy(header string) bool {
	is := func(name string) bool { return exchange.SameName(header, name) }
	begins := func(prefix string) bool { return exchange.NameHasPrefix(header, prefix) }
	return begins("X-Remote-") || slices.ContainsFunc(p.headers.extra, begins) ||
		slices.ContainsFunc(slices.Concat(p.headers.name, p.headers.uid, p.headers.groups), is)
}

// userHeaders are the names of headers that name a user. They are immutable.
type userHeaders struct {
	name, uid []string // the value of the first that is not empty
	groups    []string // all values of all of them
	extra     []string // prefixes; the rest of a header's name is an extra's key
}

// read returns the user that h names, who may lack a name. It keeps nothing of the rest of the head.
func (u *userHeaders) read(h exchange.Header) *UserInfo {
	user := &UserInfo{Name: firstValue(h, u.name), UID: firstValue(h, u.uid)}
	for _, header := range u.groups {
		for _, group := range h.All(header) {
			user.Groups = append(user.Groups, strings.Clone(group))
		}
	}
	for _, prefix := range u.extra {
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
