package auth

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

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/request"
)

// Kind is how somebody has shown who they are. It is all that logs and metrics say of an identity.
type Kind int

const (
	KindAnonymous   Kind = iota // nobody in particular; the zero identity
	KindOwn                     // the proxy itself
	KindToken                   // the owner of a bearer token, whoever that is
	KindCertificate             // the subject of a client certificate
	KindFrontProxy              // whom a front proxy names
	Kinds
)

func (k Kind) String() string {
	return [Kinds]string{"anonymous", "own", "token", "certificate", "front-proxy"}[k]
}

// Identity is who a request is made as. Its token is a secret: it goes into the
// Authorization header of requests to kube-apiserver and nowhere else.
type Identity struct {
	Kind    Kind
	Token   string       // of kindToken; empty where kube-apiserver reads it from the WebSocket's subprotocols
	User    *UserInfo    // of kindCertificate and kindFrontProxy, nil for the others; immutable
	voucher *voucher     // of kindCertificate and kindFrontProxy: why user is believed
	By      *UserInfo    // who acts as user, if that is somebody else; immutable, and for the audit log only
	From    netip.Prefix // the client's address; it decides nothing but whose turn it is
}

// String and GoString keep tokens and names out of logs and messages.
func (id Identity) String() string   { return id.Kind.String() }
func (id Identity) GoString() string { return id.String() }

// UserInfo is a user as kube-apiserver knows one (k8s.io/apiserver pkg/authentication/user).
type UserInfo struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Size returns how much memory the user's name, uid, groups and extra take, in bytes.
func (u *UserInfo) Size() int {
	n := len(u.Name) + len(u.UID)
	for _, group := range u.Groups {
		n += len(group)
	}
	for key, values := range u.Extra {
		n += len(key)
		for _, value := range values {
			n += len(value)
		}
	}
	return n
}

const (
	AnonymousUser        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"

	credentialIDKey = "authentication.kubernetes.io/credential-id" // an extra's, of a certificate's hash
)

// uidOID is the attribute of a certificate's subject that holds the user's uid (k8s.io/apimachinery
// pkg/apis/asn1).
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// Authenticator says who clients are. Its order is kube-apiserver's: front proxy, client
// certificate, bearer token, anonymous (k8s.io/kubernetes
// pkg/kubeapiserver/authenticator/config.go). Its fields are immutable.
type Authenticator struct {
	clientCA  *authorities // signs client certificates; nil is nobody's
	Front     FrontProxies
	anonymous bool // whether a request on the secure port may come without any credential
}

// NewAuthenticator reads the files that opts name.
func NewAuthenticator(opts *Options, log *slog.Logger) (*Authenticator, error) {
	a := &Authenticator{
		anonymous: opts.AnonymousAuth,
		Front: FrontProxies{
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
	a.Front.ca, err = newAuthorities(opts.RequestHeaderClientCAFile, log)
	return a, err
}

// Identify returns who the request of ctx is to be made as. On the insecure port whoever presents
// nothing is the proxy itself. Whoever presents a bearer token, on either port, is its owner and
// never gets more rights than that; kube-apiserver will check it. A Status says why the request is
// to be made as nobody.
//
// As in kube-apiserver, a certificate that is not good does no harm beside a token, but its owner
// is not anonymous either.
func (a *Authenticator) Identify(ctx *fasthttp.RequestCtx, secure bool) (Identity, *metav1.Status) {
	var certificates []*x509.Certificate
	if secure && a.asksForCertificates() {
		if state := ctx.TLSConnectionState(); state != nil {
			certificates = state.PeerCertificates
		}
	}
	if id, ok := a.identifyCertificate(&ctx.Request.Header, certificates); ok {
		if !id.User.expressible() {
			return Identity{}, apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden,
				"this client's name, uid, groups or extra cannot be passed on in a header, so kube-apiserver cannot be asked in its name")
		}
		return id, nil
	}
	token, given, bearer := bearerToken(&ctx.Request.Header)
	switch {
	case bearer:
		return Identity{Kind: KindToken, Token: token}, nil
	case bearerSubprotocol(ctx):
		return Identity{Kind: KindToken}, nil // kube-apiserver reads the token from where it is
	case !secure && !given:
		return Identity{Kind: KindOwn}, nil
	case secure && a.anonymous && len(certificates) == 0:
		return Identity{}, nil
	}
	return Identity{}, apistatus.Unauthorized()
}

// identifyCertificate returns the user that the client's certificate speaks for: one whom it names,
// or its own subject.
func (a *Authenticator) identifyCertificate(h *fasthttp.RequestHeader, certificates []*x509.Certificate) (Identity, bool) {
	if len(certificates) == 0 {
		return Identity{}, false
	}
	if v, ok := a.Front.trusts(certificates); ok {
		if user := a.Front.user(h); user != nil {
			return Identity{Kind: KindFrontProxy, User: user, voucher: v}, true
		}
	}
	v, ok := a.clientCA.verify(certificates)
	if !ok {
		return Identity{}, false
	}
	user := certificateUser(certificates[0])
	if user == nil {
		return Identity{}, false
	}
	return Identity{Kind: KindCertificate, User: user, voucher: v}, true
}

func (a *Authenticator) asksForCertificates() bool { return a.clientCA != nil || a.Front.ca != nil }

// ClientAuth is a tls.Config's ClientAuth. A certificate is asked for and looked at when a request
// comes, as in kube-apiserver: one that is not good must not keep a client with a token out, and
// one may turn bad while its connection is open.
func (a *Authenticator) ClientAuth() tls.ClientAuthType {
	if a.asksForCertificates() {
		return tls.RequestClientCert
	}
	return tls.NoClientCert
}

// certificateUser returns the user that a client certificate is issued to, nil if to none
// (k8s.io/apiserver pkg/authentication/request/x509).
func certificateUser(c *x509.Certificate) *UserInfo {
	uid, ok := certificateUID(c)
	if c.Subject.CommonName == "" || !ok {
		return nil
	}
	hash := sha256.Sum256(c.Raw)
	user := &UserInfo{
		Name:   c.Subject.CommonName,
		UID:    uid,
		Groups: slices.Clone(c.Subject.Organization),
		Extra:  map[string][]string{credentialIDKey: {"X509SHA256=" + hex.EncodeToString(hash[:])}},
	}
	user.addAuthenticated()
	return user
}

// certificateUID returns the uid of a certificate's subject, "" if it has none, and whether it has
// no more than one and that is good.
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

// addAuthenticated adds the group of everybody who is somebody (k8s.io/apiserver
// pkg/authentication/group).
func (u *UserInfo) addAuthenticated() {
	if u.Name != AnonymousUser && !slices.Contains(u.Groups, groupAuthenticated) && !slices.Contains(u.Groups, groupUnauthenticated) {
		u.Groups = append(u.Groups, groupAuthenticated)
	}
}

// Headers by which one user acts as another (k8s.io/api/authentication/v1). All begin with
// impersonatePrefix.
const (
	ImpersonateUser        = "Impersonate-User"
	impersonateUID         = "Impersonate-Uid"
	impersonateGroup       = "Impersonate-Group"
	impersonateExtraPrefix = "Impersonate-Extra-"
)

// Impersonate makes h ask kube-apiserver to take the request for u's, and for nobody else's:
// whatever it asked before is removed.
func (u *UserInfo) Impersonate(h http.Header) {
	for name := range h {
		if request.HasPrefixFold(name, request.ImpersonatePrefix) {
			delete(h, name)
		}
	}
	h.Set(ImpersonateUser, u.Name)
	if u.UID != "" {
		h.Set(impersonateUID, u.UID)
	}
	for _, group := range u.Groups {
		h.Add(impersonateGroup, group)
	}
	for key, values := range u.Extra {
		for _, value := range values {
			h.Add(impersonateExtraPrefix+escapeExtraKey(key), value)
		}
	}
}

// expressible reports whether u comes out of headers, and of an access review's JSON, as it went
// in: a value that begins or ends with white space would come out as another user's.
func (u *UserInfo) expressible() bool {
	values := append([]string{u.Name, u.UID}, u.Groups...)
	for key, extra := range u.Extra {
		values = append(append(values, key), extra...)
	}
	for _, v := range values {
		if strings.Trim(v, " \t") != v || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return false
		}
	}
	return u.Name != ""
}

// escapeExtraKey encodes an extra's key for a header's name as client-go's transport does, and
// upper-case letters as well: kube-apiserver makes the name lower-case before it decodes it.
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
	header, given := request.FirstHeader(h, fasthttp.HeaderAuthorization)
	parts := strings.SplitN(strings.TrimSpace(header), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") || parts[1] == "" {
		return "", given, false
	}
	return parts[1], true, true
}

// bearerSubprotocol reports whether the request opens a WebSocket with a token among its subprotocols, as browsers must send it
// (k8s.io/apiserver pkg/authentication/request/websocket).
func bearerSubprotocol(ctx *fasthttp.RequestCtx) bool {
	if !strings.EqualFold(request.UpgradeType(ctx), "websocket") {
		return false
	}
	for k, v := range ctx.Request.Header.All() {
		if !request.HeaderIs(k, "Sec-Websocket-Protocol") {
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
