package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identityKind is how somebody has shown who they are. It is all that logs and metrics say of an identity.
type identityKind int

const (
	kindAnonymous   identityKind = iota // nobody in particular; the zero identity
	kindOwn                             // the proxy itself
	kindToken                           // the owner of a bearer token, whoever that is
	kindCertificate                     // the subject of a client certificate
	kindFrontProxy                      // whom a front proxy names
	identityKinds
)

func (k identityKind) String() string {
	return [identityKinds]string{"anonymous", "own", "token", "certificate", "front-proxy"}[k]
}

// identity is who a request is made as. Its token is a secret: it goes into the
// Authorization header of requests to kube-apiserver and nowhere else.
type identity struct {
	kind    identityKind
	token   string       // of kindToken; empty where kube-apiserver reads it from the WebSocket's subprotocols
	user    *userInfo    // of kindCertificate and kindFrontProxy, nil for the others; immutable
	voucher *voucher     // of kindCertificate and kindFrontProxy: why user is believed
	by      *userInfo    // who acts as user, if that is somebody else; immutable, and for the audit log only
	from    netip.Prefix // the client's address; it decides nothing but whose turn it is
}

// String and GoString keep tokens and names out of logs and messages.
func (id identity) String() string   { return id.kind.String() }
func (id identity) GoString() string { return id.String() }

// userInfo is a user as kube-apiserver knows one (k8s.io/apiserver pkg/authentication/user).
type userInfo struct {
	name   string
	uid    string
	groups []string
	extra  map[string][]string
}

// size returns how much memory the user's name, uid, groups and extra take, in bytes.
func (u *userInfo) size() int {
	n := len(u.name) + len(u.uid)
	for _, group := range u.groups {
		n += len(group)
	}
	for key, values := range u.extra {
		n += len(key)
		for _, value := range values {
			n += len(value)
		}
	}
	return n
}

const (
	anonymousUser        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"

	credentialIDKey = "authentication.kubernetes.io/credential-id" // an extra's, of a certificate's hash
)

// uidOID is the attribute of a certificate's subject that holds the user's uid (k8s.io/apimachinery pkg/apis/asn1).
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// authenticator says who clients are. Its order is kube-apiserver's: front proxy, client certificate, bearer token, anonymous
// (k8s.io/kubernetes pkg/kubeapiserver/authenticator/config.go). Its fields are immutable.
type authenticator struct {
	clientCA  *authorities // signs client certificates; nil is nobody's
	front     frontProxies
	anonymous bool // whether a request on the secure port may come without any credential
}

// newAuthenticator reads the files that opts name.
func newAuthenticator(opts *AuthOptions, log *slog.Logger) (*authenticator, error) {
	a := &authenticator{
		anonymous: opts.AnonymousAuth,
		front: frontProxies{
			names:         opts.RequestHeaderAllowedNames,
			userHeaders:   opts.RequestHeaderUsernameHeaders,
			uidHeaders:    opts.RequestHeaderUIDHeaders,
			groupHeaders:  opts.RequestHeaderGroupHeaders,
			extraPrefixes: opts.RequestHeaderExtraHeadersPrefix,
		},
	}
	var err error
	if a.clientCA, err = newAuthorities(opts.ClientCAFile, log); err != nil {
		return nil, err
	}
	a.front.ca, err = newAuthorities(opts.RequestHeaderClientCAFile, log)
	return a, err
}

// identify returns who the request of ctx is to be made as. On the insecure port whoever presents nothing is the proxy itself. Whoever
// presents a bearer token, on either port, is its owner and never gets more rights than that; kube-apiserver will check it. A Status
// says why the request is to be made as nobody.
//
// As in kube-apiserver, a certificate that is not good does no harm beside a token, but its owner is not anonymous either.
func (a *authenticator) identify(ctx *fasthttp.RequestCtx, secure bool) (identity, *metav1.Status) {
	var certificates []*x509.Certificate
	if secure && a.asksForCertificates() {
		if state := ctx.TLSConnectionState(); state != nil {
			certificates = state.PeerCertificates
		}
	}
	if id, ok := a.identifyCertificate(&ctx.Request.Header, certificates); ok {
		if !id.user.expressible() {
			return identity{}, failure(http.StatusForbidden, metav1.StatusReasonForbidden,
				"this client's name, uid, groups or extra cannot be passed on in a header, so kube-apiserver cannot be asked in its name")
		}
		return id, nil
	}
	token, given, bearer := bearerToken(&ctx.Request.Header)
	switch {
	case bearer:
		return identity{kind: kindToken, token: token}, nil
	case bearerSubprotocol(ctx):
		return identity{kind: kindToken}, nil // kube-apiserver reads the token from where it is
	case !secure && !given:
		return identity{kind: kindOwn}, nil
	case secure && a.anonymous && len(certificates) == 0:
		return identity{}, nil
	}
	return identity{}, unauthorized()
}

// identifyCertificate returns the user that the client's certificate speaks for: one whom it names, or its own subject.
func (a *authenticator) identifyCertificate(h *fasthttp.RequestHeader, certificates []*x509.Certificate) (identity, bool) {
	if len(certificates) == 0 {
		return identity{}, false
	}
	if v, ok := a.front.trusts(certificates); ok {
		if user := a.front.user(h); user != nil {
			return identity{kind: kindFrontProxy, user: user, voucher: v}, true
		}
	}
	v, ok := a.clientCA.verify(certificates)
	if !ok {
		return identity{}, false
	}
	user := certificateUser(certificates[0])
	if user == nil {
		return identity{}, false
	}
	return identity{kind: kindCertificate, user: user, voucher: v}, true
}

func (a *authenticator) asksForCertificates() bool { return a.clientCA != nil || a.front.ca != nil }

// clientAuth is a tls.Config's ClientAuth. A certificate is asked for and looked at when a request comes, as in kube-apiserver: one
// that is not good must not keep a client with a token out, and one may turn bad while its connection is open.
func (a *authenticator) clientAuth() tls.ClientAuthType {
	if a.asksForCertificates() {
		return tls.RequestClientCert
	}
	return tls.NoClientCert
}

// certificateUser returns the user that a client certificate is issued to, nil if to none
// (k8s.io/apiserver pkg/authentication/request/x509).
func certificateUser(c *x509.Certificate) *userInfo {
	uid, ok := certificateUID(c)
	if c.Subject.CommonName == "" || !ok {
		return nil
	}
	hash := sha256.Sum256(c.Raw)
	user := &userInfo{
		name:   c.Subject.CommonName,
		uid:    uid,
		groups: slices.Clone(c.Subject.Organization),
		extra:  map[string][]string{credentialIDKey: {"X509SHA256=" + hex.EncodeToString(hash[:])}},
	}
	user.addAuthenticated()
	return user
}

// certificateUID returns the uid of a certificate's subject, "" if it has none, and whether it has no more than one and that is good.
func certificateUID(c *x509.Certificate) (uid string, ok bool) {
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(uidOID) {
			continue
		}
		value, isString := name.Value.(string)
		if !isString || value == "" || uid != "" {
			return "", false
		}
		uid = value
	}
	return uid, true
}

// addAuthenticated adds the group of everybody who is somebody (k8s.io/apiserver pkg/authentication/group).
func (u *userInfo) addAuthenticated() {
	if u.name != anonymousUser && !slices.Contains(u.groups, groupAuthenticated) && !slices.Contains(u.groups, groupUnauthenticated) {
		u.groups = append(u.groups, groupAuthenticated)
	}
}

// Headers by which one user acts as another (k8s.io/api/authentication/v1). All begin with impersonatePrefix.
const (
	impersonateUser        = "Impersonate-User"
	impersonateUID         = "Impersonate-Uid"
	impersonateGroup       = "Impersonate-Group"
	impersonateExtraPrefix = "Impersonate-Extra-"
)

// impersonate makes h ask kube-apiserver to take the request for u's, and for nobody else's: whatever it asked before is removed.
func (u *userInfo) impersonate(h http.Header) {
	for name := range h {
		if hasPrefixFold(name, impersonatePrefix) {
			delete(h, name)
		}
	}
	h.Set(impersonateUser, u.name)
	if u.uid != "" {
		h.Set(impersonateUID, u.uid)
	}
	for _, group := range u.groups {
		h.Add(impersonateGroup, group)
	}
	for key, values := range u.extra {
		for _, value := range values {
			h.Add(impersonateExtraPrefix+escapeExtraKey(key), value)
		}
	}
}

// expressible reports whether u comes out of headers, and of an access review's JSON, as it went in: a value that begins or ends with
// white space would come out as another user's.
func (u *userInfo) expressible() bool {
	values := append([]string{u.name, u.uid}, u.groups...)
	for key, extra := range u.extra {
		values = append(append(values, key), extra...)
	}
	for _, v := range values {
		if strings.Trim(v, " \t") != v || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return false
		}
	}
	return u.name != ""
}

// escapeExtraKey encodes an extra's key for a header's name as client-go's transport does, and upper-case letters as well: kube-apiserver
// makes the name lower-case before it decodes it.
func escapeExtraKey(key string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(key) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xf]})
		}
	}
	return b.String()
}

// unescapeExtraKey is how kube-apiserver reads what follows a prefix in a header's name.
func unescapeExtraKey(name string) string {
	name = strings.ToLower(name)
	if key, err := url.PathUnescape(name); err == nil {
		return key
	}
	return name
}

// bearerToken returns the token of the Authorization header, whether there is such a header, and whether it has a token.
// It is read as k8s.io/apiserver pkg/authentication/request/bearertoken does.
func bearerToken(h *fasthttp.RequestHeader) (token string, given, bearer bool) {
	header, given := firstHeader(h, fasthttp.HeaderAuthorization)
	parts := strings.SplitN(strings.TrimSpace(header), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") || parts[1] == "" {
		return "", given, false
	}
	return parts[1], true, true
}

// bearerSubprotocol reports whether the request opens a WebSocket with a token among its subprotocols, as browsers must send it
// (k8s.io/apiserver pkg/authentication/request/websocket).
func bearerSubprotocol(ctx *fasthttp.RequestCtx) bool {
	if !strings.EqualFold(upgradeType(ctx), "websocket") {
		return false
	}
	for k, v := range ctx.Request.Header.All() {
		if !headerIs(k, "Sec-Websocket-Protocol") {
			continue
		}
		for protocol := range strings.SplitSeq(string(v), ",") {
			if strings.HasPrefix(strings.TrimSpace(protocol), "base64url.bearer.authorization.k8s.io.") {
				return true
			}
		}
	}
	return false
}
