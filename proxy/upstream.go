package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Upstream is the one place that knows kube-apiserver's address, how to trust it, and our credentials, which client-go keeps
// current: token files are read again, client certificates rotate, exec plugins run.
//
// Nobody's rights leak into anybody's request: requests with a client's token, or with nothing, go over transports without any credential
// of ours, connections included, so that a client certificate never accompanies a client's token. A client that we know by name
// only is impersonated: the request carries our credential and says whom kube-apiserver is to take it for.
//
// Over TLS it speaks HTTP/2. A connection on which nothing has come for 30 s is pinged and given up 15 s later
// (client-go's defaults; $HTTP2_READ_IDLE_TIMEOUT_SECONDS and $HTTP2_PING_TIMEOUT_SECONDS change them), so a watch over a dead link
// ends within 45 s. Responses are never decompressed, and there is no timeout: the context of the request decides.
//
// Its methods may be called from any goroutine.
type Upstream struct {
	base *url.URL
	via  via // the proxy's name in requests

	own, ownUpgrade             http.RoundTripper // with our credentials
	anonymous, anonymousUpgrade http.RoundTripper // with none
}

// NewUpstream returns the Upstream that cfg describes. It connects to nothing yet.
func NewUpstream(cfg *rest.Config) (*Upstream, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	cfg.UserAgent = "" // set per request, or not at all where a client sent none
	if cfg.Dial == nil {
		// A dialer of our own also gives us transports of our own: client-go shares http.DefaultTransport otherwise,
		// which decompresses.
		cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("upstream address: %w", err)
	}
	u := &Upstream{base: base, via: newVia()}
	u.base.RawQuery, u.base.Fragment = "", ""
	u.base.Path = strings.TrimSuffix(u.base.Path, "/")
	u.base.RawPath = ""

	http1 := func(cfg *rest.Config) *rest.Config {
		cfg = rest.CopyConfig(cfg)
		cfg.NextProtos = []string{"http/1.1"}
		return cfg
	}
	anonymous := rest.AnonymousClientConfig(cfg)
	for _, t := range []struct {
		rt  *http.RoundTripper
		cfg *rest.Config
	}{
		{&u.own, cfg},
		{&u.ownUpgrade, http1(cfg)},
		{&u.anonymous, anonymous},
		{&u.anonymousUpgrade, http1(anonymous)},
	} {
		if *t.rt, err = rest.TransportFor(t.cfg); err != nil {
			return nil, fmt.Errorf("upstream transport: %w", err)
		}
	}
	return u, nil
}

// Address returns scheme, host and port, for logs.
func (u *Upstream) Address() string { return u.base.Scheme + "://" + u.base.Host }

// URL returns the address of path, given as it stands in a request line (escaped), under the server's base path.
// A path with a malformed escape is taken literally.
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

// Do sends req with our own credentials. req is for Do alone afterwards.
func (u *Upstream) Do(req *http.Request) (*http.Response, error) {
	return u.send(u.own, req)
}

// DoAs sends req as id: as ourselves, with the client's token and nothing else, with nothing at all, or in a user's name. Any Authorization
// header in req is replaced; Impersonate-* headers are, in a user's name.
func (u *Upstream) DoAs(id identity, req *http.Request) (*http.Response, error) {
	return u.send(as(id, req, u.own, u.anonymous), req)
}

// DoUpgrade is DoAs for a request that asks to change protocols. When the response's code is 101 its Body is an
// io.ReadWriteCloser, the connection, which no longer ends with the request's context.
func (u *Upstream) DoUpgrade(id identity, req *http.Request) (*http.Response, error) {
	return u.send(as(id, req, u.ownUpgrade, u.anonymousUpgrade), req)
}

// as prepares req to be sent as id and returns the transport for it.
func as(id identity, req *http.Request, own, anonymous http.RoundTripper) http.RoundTripper {
	req.Header.Del("Authorization")
	if id.kind == kindOwn {
		return own
	}
	if id.user != nil {
		id.user.impersonate(req.Header)
		return own
	}
	if id.token != "" {
		req.Header.Set("Authorization", "Bearer "+id.token)
	}
	return anonymous
}

func (u *Upstream) send(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	u.via.mark(req.Header)
	return rt.RoundTrip(req)
}

// userAgent is how kube-apiserver's audit log names our own requests.
var userAgent = rest.DefaultKubernetesUserAgent()

// CloseIdleConnections closes connections without a request on them.
func (u *Upstream) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{u.own, u.ownUpgrade, u.anonymous, u.anonymousUpgrade} {
		utilnet.CloseIdleConnectionsFor(rt)
	}
}
