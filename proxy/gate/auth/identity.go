package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// Kind is how a client is authenticated. Logs and metrics say nothing else of an identity.
type Kind int

const (
	KindAnonymous   Kind = iota // no credential; the zero Identity
	KindOwn                     // the proxy itself
	KindToken                   // the owner of a bearer token, who need not be known
	KindCertificate             // the subject of a client certificate
	KindFrontProxy              // a user that a front proxy names
	Kinds                       // the number of kinds

	// KindNobody is of a request that is refused before its client is identified, or because it is not.
	KindNobody = Kinds
)

func (k Kind) String() string {
	return [...]string{"anonymous", "own", "token", "certificate", "front-proxy", "nobody"}[k]
}

// Identity is the user that a request is made as. Its token is a secret: it goes into the
// Authorization header of requests to kube-apiserver and nowhere else.
type Identity struct {
	Kind  Kind
	Token string    // of KindToken
	User  *UserInfo // of KindCertificate and KindFrontProxy, nil for the others; immutable
	By    *UserInfo // the user that acts as User, nil if it is the same; immutable
	// Reviews are the auditIDs of the reviews that let By act as User; none without an audit log.
	Reviews []string
	From    netip.Prefix // the client's address; it is used for fairness only
	// Warning is the Warning that kube-apiserver's answers have because of an Authorization header
	// without a token; "" for none. That header is not sent on.
	Warning string

	certificate *verifiedCertificate // of KindCertificate and KindFrontProxy, the client's or the front proxy's
}

// String and GoString keep tokens and names out of logs and messages.
func (id Identity) String() string   { return id.Kind.String() }
func (id Identity) GoString() string { return id.String() }

// Unauthenticated reports whether kube-apiserver counts the client as anonymous
// (k8s.io/apiserver pkg/endpoints/filters/authentication.go). It ends an HTTP/2 connection, with
// GOAWAY, when it answers such a client.
func (id Identity) Unauthenticated() bool {
	return id.Kind == KindAnonymous ||
		id.User != nil && (id.User.Name == "system:anonymous" || slices.Contains(id.User.Groups, "system:unauthenticated"))
}

// Authenticator identifies clients. Its order is kube-apiserver's: front proxy, client
// certificate, bearer token, anonymous (k8s.io/kubernetes
// pkg/kubeapiserver/authenticator/config.go). Its fields are immutable.
type Authenticator struct {
	clientCAs *clientCAs // sign client certificates; nil has none
	Front     FrontProxies
	anonymous bool // whether a request to the secure port may have no credential
}

// NewAuthenticator reads the files that opts name.
func NewAuthenticator(opts *Options, log *slog.Logger) (*Authenticator, error) {
	a := &Authenticator{
		anonymous: opts.AnonymousAuth,
		Front: FrontProxies{
			names: opts.RequestHeaderAllowedNames,
			headers: userHeaders{
				name:   opts.RequestHeaderUsernameHeaders,
				uid:    opts.RequestHeaderUIDHeaders,
				groups: opts.RequestHeaderGroupHeaders,
				extra:  opts.RequestHeaderExtraHeadersPrefix,
			},
		},
	}
	var err error
	if a.clientCAs, err = newClientCAs(opts.ClientCAFile, log); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w: %s", err, giveCAs)
	}
	if a.Front.cas, err = newClientCAs(opts.RequestHeaderClientCAFile, log); err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w: %s", err, giveCAs)
	}
	return a, nil
}

const giveCAs = "give a PEM file of certificates that watchfan may read"

// Identify returns the identity that the request of x is made as. On the insecure port, a client
// without a credential is the proxy itself. On either port, a client with a bearer token is the
// token's owner and never gets more rights than that. kube-apiserver will check the token. If
// Identify returns a Status, the request is refused with it.
//
// As in kube-apiserver, a certificate that is not good does no harm beside a token. Without a
// token, its client is not anonymous but refused. A token among the subprotocols of a WebSocket
// counts if Authorization has none. Identify then removes it from x's head.
func (a *Authenticator) Identify(x *exchange.Exchange) (Identity, *metav1.Status) {
	var certificates []*x509.Certificate
	secure := x.Conn.Secure()
	if secure && a.asksForCertificates() {
		if state := x.Conn.TLS(); state != nil {
			certificates = state.PeerCertificates
		}
	}
	if id, ok := a.identifyCertificate(x.Header, certificates); ok {
		if !id.User.expressible() {
			return Identity{}, apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden,
				"this client's name, uid, groups or extra cannot be passed on in a header, so kube-apiserver cannot be asked in its name")
		}
		return id, nil
	}
	header, protocol := authorizationOf(x.Header), websocketTokenOf(x)
	switch {
	case header.token != "":
		return Identity{Kind: KindToken, Token: header.token}, nil
	case protocol.bad:
		return Identity{}, apistatus.Unauthorized()
	case protocol.token != "":
		// It is neither sent on twice nor chosen as the subprotocol.
		x.Header.Set(websocket.ProtocolHeader, strings.Join(protocol.rest, ","))
		return Identity{Kind: KindToken, Token: protocol.token, Warning: header.warning}, nil
	case !secure && !header.given && !protocol.given:
		return Identity{Kind: KindOwn}, nil
	case secure && a.anonymous && len(certificates) == 0:
		return Identity{Warning: header.warning}, nil
	}
	return Identity{}, apistatus.Unauthorized()
}

// identifyCertificate returns the user that the client's certificate stands for: the user that a
// front proxy names, or the certificate's subject.
func (a *Authenticator) identifyCertificate(h exchange.Header, certificates []*x509.Certificate) (Identity, bool) {
	if len(certificates) == 0 {
		return Identity{}, false
	}
	if v, ok := a.Front.trusts(certificates); ok {
		if user := a.Front.user(h); user != nil {
			return Identity{Kind: KindFrontProxy, User: user, certificate: v}, true
		}
	}
	v, ok := a.clientCAs.verify(certificates)
	if !ok {
		return Identity{}, false
	}
	user := certificateUser(certificates[0])
	if user == nil {
		return Identity{}, false
	}
	return Identity{Kind: KindCertificate, User: user, certificate: v}, true
}

func (a *Authenticator) asksForCertificates() bool { return a.clientCAs != nil || a.Front.cas != nil }

// ClientAuth is a tls.Config's ClientAuth. The handshake asks for a certificate, and each request
// verifies it, as in kube-apiserver. A certificate that is not good must not keep a client with a
// token out, and a certificate may expire while its connection is open.
func (a *Authenticator) ClientAuth() tls.ClientAuthType {
	if a.asksForCertificates() {
		return tls.RequestClientCert
	}
	return tls.NoClientCert
}

// mostCertificates and mostCertificateBytes bound the certificates that a client presents. An open connection keeps
// what they were parsed to, 3 KiB for each and more, also a stranger's. A chain has two to four, of 1 to 2 KB each.
const mostCertificates, mostCertificateBytes = 10, 32 << 10

// VerifyConnection is a tls.Config's VerifyConnection. It ends the handshake of a client that presents too much.
func (a *Authenticator) VerifyConnection(state tls.ConnectionState) error {
	bytes := 0
	for _, c := range state.PeerCertificates {
		bytes += len(c.Raw)
	}
	if n := len(state.PeerCertificates); n > mostCertificates || bytes > mostCertificateBytes {
		return fmt.Errorf("the client presents %d certificates of %d bytes in all", n, bytes)
	}
	return nil
}

// authorization is what a client's Authorization header says. It is read as k8s.io/apiserver
// pkg/authentication/request/bearertoken does.
type authorization struct {
	given   bool   // there is such a header
	token   string // "" for none
	warning string // kube-apiserver's Warning about it; "" for none
}

// spaceWarning is kube-apiserver's Warning about an Authorization header with extra space (the same
// package).
const spaceWarning = `299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"`

func authorizationOf(h exchange.Header) (a authorization) {
	header, given := h.First("Authorization")
	a.given = given
	parts := strings.SplitN(strings.TrimSpace(header), " ", 3)
	switch {
	case len(parts) < 2 || !strings.EqualFold(parts[0], "bearer"):
	case parts[1] != "":
		a.token = strings.Clone(parts[1]) // it is kept, and the rest of the head is not
	case len(parts) == 3:
		a.warning = spaceWarning
	}
	return a
}

// WarnUnauthorized adds that Warning to the answer to x, which is 401.
func WarnUnauthorized(x *exchange.Exchange) {
	if w := authorizationOf(x.Header).warning; w != "" {
		x.Response.Header.Add("Warning", w)
	}
}

// ShownName is the name of an identity on the pages about watches: the user's name, where the proxy
// knows it. A service account's token names its owner, and kube-apiserver has accepted the token,
// so the name is true. Other tokens are not read.
func (id Identity) ShownName() string {
	name, _ := id.Names()
	return name
}

// Names returns the ShownName, and the uid of the pod that a service account's token is bound to; "" for
// none.
func (id Identity) Names() (shown, pod string) {
	switch {
	case id.User != nil:
		return id.User.Name, ""
	case id.Kind == KindToken:
		if c, ok := readClaims(id.Token); ok {
			return c.Subject, c.Kubernetes.Pod.UID
		}
	}
	return "(" + id.Kind.String() + ")", ""
}

// TokenSubject returns the user of a service account's token: its subject (RFC 7519, section
// 4.1.2). The subject of other tokens is not always a user's name, so they have none here. The
// token is not checked.
func TokenSubject(token string) (name string, ok bool) {
	claims, ok := readClaims(token)
	return claims.Subject, ok
}

// claims are those of a service account's token.
type claims struct {
	Subject    string `json:"sub"`
	Kubernetes struct {
		Pod struct {
			UID string `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

func readClaims(token string) (c claims, ok bool) {
	parts := strings.SplitN(token, ".", 4) // a stranger's token may be a million dots
	if len(parts) != 3 || len(parts[1]) > 8<<10 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}, false
	}
	if _, _, ok := serviceAccount(c.Subject); !ok {
		return claims{}, false
	}
	return c, true
}
