package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Upstream is the client to kube-apiserver. Only Upstream knows kube-apiserver's address, how to
// trust it, and the proxy's own credentials. client-go keeps the credentials current: it reads
// token files again, rotates client certificates and runs exec plugins.
//
// No request gets another's rights. Requests with a client's token, or with nothing, go over
// transports, connections included, that have no credential of the proxy. So the proxy's client
// certificate never accompanies a client's token. A client that is known by name only is
// impersonated: the request carries the proxy's credential and names the user.
//
// Strangers share no HTTP/2 connection with known clients, nor with each other (see
// auth.KnownTokens). kube-apiserver ends an HTTP/2 connection (GOAWAY) with every anonymous request
// and with every request that it answers with 401. A request on that connection that it has not
// begun to answer has to be sent again, and a long body cannot be. It leaves connections of HTTP/1.1
// open. So strangers' requests go over HTTP/1.1, one at a time on a connection. From its first
// acceptance on, a token uses the shared HTTP/2 connection, and for brief requests the connections of
// HTTP/1.1 that known clients share; see type direct.
//
// A stranger's request may say Expect: 100-continue; see package passthrough. If it is refused, it costs
// that connection, because its body was not sent.
//
// What a client does not read stays in a buffer here: at most [Window] bytes of each response to a
// client. The proxy's own requests have Go's larger windows, because they read at once.
//
// A peer that has gone without closing its connections is noticed within about ten seconds. Then
// every request on its connections fails. Over TLS the protocol is HTTP/2: a connection on which
// nothing has come for 5 s is pinged. It is given up if no answer comes within 5 s, whether the
// link is dead or the process behind it is stopped. $HTTP2_READ_IDLE_TIMEOUT_SECONDS and
// $HTTP2_PING_TIMEOUT_SECONDS, which client-go reads, change both times. Below HTTP/2, and for
// HTTP/1, the kernel does the same for the link; see dialer. Only the reader of a response can
// notice that an HTTP/1 server is stopped; see package lane's watchdog, and directConn.Read.
//
// Responses are never decompressed. There is no timeout but the context of the request.
//
// Its methods may be called from any goroutine.
type Upstream struct {
	base   *url.URL
	Via    via               // the proxy's name in requests
	Tokens *auth.KnownTokens // that kube-apiserver has accepted lately

	// With the proxy's credentials: for the proxy itself, for clients that it names, and for upgrades.
	own, naming, ownUpgrade http.RoundTripper
	// With none: for known tokens, and for strangers and upgrades.
	known, strangers http.RoundTripper

	ownWarnings atomic.Pointer[[]string] // nil until they are known; see OwnWarnings
	nodes       nodeNaming
}

// NewUpstream returns the Upstream that cfg describes. It connects to nothing yet.
func NewUpstream(cfg *rest.Config) (*Upstream, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	cfg.UserAgent = "" // set per request, or not at all where a client sent none
	dials := cfg.Dial == nil
	if dials {
		// With this dialer, client-go also makes separate transports. Otherwise it shares
		// http.DefaultTransport, which decompresses.
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer(endDeadPeer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return quick(ctx, c)
		}
	}
	if err := pingOften(); err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("upstream address: %w", err)
	}
	u := &Upstream{base: base, Via: newVia(), Tokens: auth.NewKnownTokens()}
	u.base.RawQuery, u.base.Fragment = "", ""
	u.base.Path = strings.TrimSuffix(u.base.Path, "/")
	u.base.RawPath = ""

	http1 := func(cfg *rest.Config) *rest.Config {
		cfg = rest.CopyConfig(cfg)
		cfg.NextProtos = []string{"http/1.1"}
		if dials {
			// The reader of a tunnel may be slow. endDeadPeer would take it for dead.
			cfg.Dial = dialer(nil).DialContext
		}
		return cfg
	}
	directly := func(cfg *rest.Config) *rest.Config {
		cfg = rest.CopyConfig(cfg)
		cfg.Wrap(func(below http.RoundTripper) http.RoundTripper {
			return &direct{below: below, silence: silence, patience: patience}
		})
		return cfg
	}
	anonymous := rest.AnonymousClientConfig(cfg)
	for _, t := range []struct {
		rt  *http.RoundTripper
		cfg *rest.Config
		set func(*http.Transport)
	}{
		{&u.own, directly(cfg), nil},
		{&u.naming, directly(cfg), forClients},
		{&u.ownUpgrade, http1(cfg), nil},
		{&u.known, directly(anonymous), forClients},
		{&u.strangers, http1(anonymous), forStrangers},
	} {
		if *t.rt, err = rest.TransportFor(t.cfg); err == nil && t.set != nil {
			err = configure(*t.rt, t.set)
		}
		if err != nil {
			return nil, fmt.Errorf("upstream transport: %w", err)
		}
	}
	return u, nil
}

const (
	// Window is how many bytes of a response wait for their reader at most. It bounds a stream's
	// window of HTTP/2. That of the connection is never closed (1 GiB), so a response that nobody
	// reads does not hold up the others.
	Window = 256 << 10

	// continueWait is how long a stranger's body waits for 100 Continue. After that it is sent
	// without, because a proxy in front of kube-apiserver may not pass Expect on (RFC 9110, section
	// 10.1.1). kube-apiserver refuses strangers much sooner.
	continueWait = 5 * time.Second
	// strangersIdle is how long a connection for strangers is kept open. It is less than
	// kube-apiserver's own 90 s, and than the usual 60 s of proxies in front of it: a write on a
	// connection that the other side is just closing would fail.
	strangersIdle = 30 * time.Second
	// mostStrangersIdle is how many connections for strangers are kept open.
	mostStrangersIdle = 64
)

// forClients configures a transport that clients share.
func forClients(t *http.Transport) {
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: Window}
	boundDials(t, mostClientsDials)
}

// forStrangers configures the transport for strangers.
func forStrangers(t *http.Transport) {
	t.ExpectContinueTimeout = continueWait
	t.IdleConnTimeout = strangersIdle
	t.MaxIdleConnsPerHost = mostStrangersIdle
	boundDials(t, mostStrangersDials)
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
}

// configure calls set for the transport that client-go has made, below its wrappers and before its
// first use. When a CA certificate changes, client-go clones it with its settings.
func configure(rt http.RoundTripper, set func(*http.Transport)) error {
	t := httpTransport(rt)
	if t == nil {
		return fmt.Errorf("%T cannot be configured", rt)
	}
	set(t)
	return nil
}

// deadPeer is how long a peer may leave data or probes unanswered.
const deadPeer = 10 * time.Second

// dialer returns the dialer for kube-apiserver. A connection on which nothing has come for 5 s is
// probed each 2 s, and ends when three probes in a row are not acknowledged. A host that does not
// answer within 5 s is dialled anew, because the kernel's pauses between two tries would grow
// longer than the host's absence.
func dialer(control func(network, address string, c syscall.RawConn) error) *net.Dialer {
	return &net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         control,
	}
}

// pingOften sets the times of HTTP/2 pings that type Upstream names, unless the environment sets
// them already. The environment is the only way to tell client-go's transports, which have other
// defaults (k8s.io/apimachinery/pkg/util/net/http.go). client-go itself makes them anew when a CA
// certificate changes.
func pingOften() error {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if _, ok := os.LookupEnv(name); ok {
			continue
		}
		if err := os.Setenv(name, "5"); err != nil {
			return fmt.Errorf("upstream transport: %w", err)
		}
	}
	return nil
}

// Address returns scheme, host and port, for logs.
func (u *Upstream) Address() string { return u.base.Scheme + "://" + u.base.Host }

// URL returns the address of path under the server's base path. path is escaped, as in a request
// line. A path with a malformed escape is taken literally.
func (u *Upstream) URL(path, rawQuery string) *url.URL {
	to := *u.base
	to.RawQuery = rawQuery
	to.RawPath = u.base.EscapedPath() + path
	var err error
	if to.Path, err = url.PathUnescape(to.RawPath); err != nil {
		to.Path, to.RawPath = u.base.Path+path, ""
	}
	return &to
}

// Within reports whether a path, escaped as in a request line, stays below the server's base path when
// its dots are resolved. Proxies in front of kube-apiserver resolve them. Another path may lead to
// another server, which must not be asked with the proxy's credentials.
func (u *Upstream) Within(escaped string) bool {
	if u.base.Path == "" {
		return true
	}
	read, err := url.PathUnescape(escaped)
	if err != nil {
		read = escaped
	}
	base := path.Clean(u.base.Path)
	return strings.HasPrefix(path.Clean(u.base.Path+read)+"/", base+"/")
}

// Do sends req with the proxy's own credentials. It is for requests about no resource: the answer
// shows which Warnings concern the credential. The caller must not use req afterwards.
func (u *Upstream) Do(req *http.Request) (*http.Response, error) {
	resp, err := u.send(u.own, req)
	if err == nil {
		u.noteOwnWarnings(resp)
	}
	return resp, err
}

// DoAs sends req as id, for the proxy itself: with the proxy's credential, with the client's token
// alone, with no credential, or in a user's name. It replaces any Authorization header of req. In a
// user's name, it replaces Impersonate-* headers too.
func (u *Upstream) DoAs(id auth.Identity, req *http.Request) (*http.Response, error) {
	return u.do(id, !u.Tokens.Known(id), req, u.own)
}

// Pass is DoAs for a client's request, whose response the client may read as slowly as it likes.
// stranger says that the client is not known: see [auth.Authorizer.Source].
func (u *Upstream) Pass(id auth.Identity, stranger bool, req *http.Request) (*http.Response, error) {
	return u.do(id, stranger, req, u.naming)
}

func (u *Upstream) do(id auth.Identity, stranger bool, req *http.Request, own http.RoundTripper) (*http.Response, error) {
	anonymous, method := u.known, req.Method
	if stranger {
		anonymous = u.strangers
	}
	resp, err := u.sendAs(id, req, own, anonymous)
	if err == nil {
		u.Tokens.Answered(id, method, resp.StatusCode)
	}
	return resp, err
}

// MaxKeptBody is the longest body, in bytes, that can be sent again. Nearly every object is
// shorter.
const MaxKeptBody = 64 << 10

// DoUpgrade is DoAs for a request that asks to change protocols. When the response's code is 101
// its Body is the connection, an io.ReadWriteCloser, which no longer ends with the request's
// context.
func (u *Upstream) DoUpgrade(id auth.Identity, req *http.Request) (*http.Response, error) {
	return u.sendAs(id, req, u.ownUpgrade, u.strangers)
}

// sendAs sends req as id, over the transport with the proxy's own credentials or the one with none.
func (u *Upstream) sendAs(id auth.Identity, req *http.Request, own, anonymous http.RoundTripper) (*http.Response, error) {
	req.Header.Del("Authorization")
	switch {
	case id.Kind == auth.KindOwn:
		return u.send(own, req)
	case id.User != nil:
		node := id.User.IsNode()
		id.User.Impersonate(req.Header, node && u.nodesByName(req.Context()))
		resp, err := u.send(own, req)
		if err == nil {
			if node && resp.StatusCode == http.StatusForbidden {
				u.nodes.doubted.Store(true)
			}
			u.hideOwnWarnings(resp.Header)
		}
		return resp, err
	case id.Token != "":
		req.Header.Set("Authorization", "Bearer "+id.Token)
	}
	return u.send(anonymous, req)
}

// ErrLongHead is the error of a request whose head kube-apiserver would not take. It has not been
// sent, and would not be the next time either.
var ErrLongHead = errors.New("the request's head is too long for kube-apiserver")

// mostHead bounds a head that is sent on. kube-apiserver takes as much as the proxy does. But the
// proxy adds fields, and over HTTP/2 32 bytes count for each. It leaves this for its own credential.
const mostHead = exchange.MaxHeaderBytes - 8<<10

func headTooLong(req *http.Request) bool {
	size := max(len(req.URL.Path), len(req.URL.RawPath)) + len(req.URL.RawQuery)
	for name, values := range req.Header {
		for _, value := range values {
			size += len(name) + len(value) + 32
		}
	}
	return size > mostHead
}

func (u *Upstream) send(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if headTooLong(req) {
		return nil, ErrLongHead
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	u.Via.Mark(req.Header)
	return rt.RoundTrip(req)
}

// userAgent names the proxy's own requests in kube-apiserver's audit log.
var userAgent = rest.DefaultKubernetesUserAgent()

// CloseIdleConnections closes connections without a request on them.
func (u *Upstream) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{u.own, u.naming, u.ownUpgrade, u.known, u.strangers} {
		utilnet.CloseIdleConnectionsFor(rt)
	}
}
