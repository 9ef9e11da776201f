package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/auth"
)

// Upstream is the one place that knows kube-apiserver's address, how to trust it, and our
// credentials, which client-go keeps current: token files are read again, client certificates
// rotate, exec plugins run.
//
// Nobody's rights leak into anybody's request: requests with a client's token, or with nothing, go
// over transports without any credential of ours, connections included, so that a client
// certificate never accompanies a client's token. A client that we know by name only is
// impersonated: the request carries our credential and says whom kube-apiserver is to take it for.
//
// Strangers share no HTTP/2 connection with known clients (see knownTokens). Kube-apiserver ends
// the connection (GOAWAY) of every anonymous request and of every one that it answers with 401, and
// whatever it has not begun to answer on that connection has to be sent again, which a long body
// cannot. So a stranger's long body goes over HTTP/1.1, where it has the connection for itself: the
// first write of an honest client is safe from other strangers too.
//
// A peer that is gone without a word is noticed within about ten seconds, and with it every request
// on the connection fails. Over TLS it speaks HTTP/2: a connection on which nothing has come for 5
// s is pinged, and given up without an answer in 5 s, be it that the link is dead or that the
// process behind it is stopped ($HTTP2_READ_IDLE_TIMEOUT_SECONDS and $HTTP2_PING_TIMEOUT_SECONDS,
// which client-go reads, change both). Below, and for HTTP/1, the kernel does the same for the
// link: see dialer. What an HTTP/1 server that is stopped owes, only its reader can miss; see
// watchdog.
//
// Responses are never decompressed, and there is no timeout: the context of the request decides.
//
// Its methods may be called from any goroutine.
type Upstream struct {
	base *url.URL
	Via  via // the proxy's name in requests

	Own, OwnUpgrade             http.RoundTripper // with our credentials
	Known                       http.RoundTripper // with none, for known tokens
	Anonymous, AnonymousUpgrade http.RoundTripper // with none, for all others

	Tokens *auth.KnownTokens
}

// NewUpstream returns the Upstream that cfg describes. It connects to nothing yet.
func NewUpstream(cfg *rest.Config) (*Upstream, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	cfg.UserAgent = "" // set per request, or not at all where a client sent none
	dials := cfg.Dial == nil
	if dials {
		// A dialer of our own also gives us transports of our own: client-go shares
		// http.DefaultTransport otherwise, which decompresses.
		cfg.Dial = dialer(endDeadPeer).DialContext
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
			cfg.Dial = dialer(nil).DialContext // what is tunnelled may be read as slowly as the other end likes, which endDeadPeer takes for dead
		}
		return cfg
	}
	anonymous := rest.AnonymousClientConfig(cfg)
	for _, t := range []struct {
		rt  *http.RoundTripper
		cfg *rest.Config
	}{
		{&u.Own, cfg},
		{&u.OwnUpgrade, http1(cfg)},
		{&u.Known, anonymous},
		{&u.Anonymous, anonymous},
		{&u.AnonymousUpgrade, http1(anonymous)},
	} {
		if *t.rt, err = rest.TransportFor(t.cfg); err != nil {
			return nil, fmt.Errorf("upstream transport: %w", err)
		}
	}
	return u, nil
}

// deadPeer is how long a peer may leave data, or probes, without an answer.
const deadPeer = 10 * time.Second

// dialer returns what connects to kube-apiserver. A connection on which nothing has come for 5 s is
// probed each 2 s, and ends when three in a row are not acknowledged. A host that does not answer
// is tried anew before the kernel's pauses between two tries grow longer than its absence.
func dialer(control func(network, address string, c syscall.RawConn) error) *net.Dialer {
	return &net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         control,
	}
}

// pingOften has HTTP/2 connections that are made from here on looked after as type Upstream says,
// unless the environment says otherwise already: there is no other way to tell client-go's
// transports, which have other defaults (k8s.io/apimachinery/pkg/util/net/http.go) and are made
// anew by client-go itself when an authority's certificate changes.
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

// URL returns the address of path, given as it stands in a request line (escaped), under the
// server's base path. A path with a malformed escape is taken literally.
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
	return u.send(u.Own, req)
}

// DoAs sends req as id: as ourselves, with the client's token and nothing else, with nothing at
// all, or in a user's name. Any Authorization header in req is replaced; Impersonate-* headers are,
// in a user's name.
func (u *Upstream) DoAs(id auth.Identity, req *http.Request) (*http.Response, error) {
	method := req.Method
	resp, err := u.send(as(id, req, u.Own, u.withoutCredential(id, req)), req)
	if err == nil {
		u.Tokens.Heard(id, method, resp.StatusCode)
	}
	return resp, err
}

// MaxKeptBody is the longest body, in bytes, that can be sent again: nearly every object's.
const MaxKeptBody = 64 << 10

// withoutCredential returns the transport for a request that is made with id's token, or with
// nothing.
func (u *Upstream) withoutCredential(id auth.Identity, req *http.Request) http.RoundTripper {
	switch {
	case u.Tokens.Has(id):
		return u.Known
	case req.Body != nil && req.Body != http.NoBody && (req.ContentLength < 0 || req.ContentLength > MaxKeptBody):
		return u.AnonymousUpgrade
	}
	return u.Anonymous
}

// DoUpgrade is DoAs for a request that asks to change protocols. When the response's code is 101
// its Body is an io.ReadWriteCloser, the connection, which no longer ends with the request's
// context.
func (u *Upstream) DoUpgrade(id auth.Identity, req *http.Request) (*http.Response, error) {
	return u.send(as(id, req, u.OwnUpgrade, u.AnonymousUpgrade), req)
}

// as prepares req to be sent as id and returns the transport for it.
func as(id auth.Identity, req *http.Request, own, anonymous http.RoundTripper) http.RoundTripper {
	req.Header.Del("Authorization")
	if id.Kind == auth.KindOwn {
		return own
	}
	if id.User != nil {
		id.User.Impersonate(req.Header)
		return own
	}
	if id.Token != "" {
		req.Header.Set("Authorization", "Bearer "+id.Token)
	}
	return anonymous
}

func (u *Upstream) send(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	u.Via.mark(req.Header)
	return rt.RoundTrip(req)
}

// userAgent is how kube-apiserver's audit log names our own requests.
var userAgent = rest.DefaultKubernetesUserAgent()

// CloseIdleConnections closes connections without a request on them.
func (u *Upstream) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{u.Own, u.OwnUpgrade, u.Known, u.Anonymous, u.AnonymousUpgrade} {
		utilnet.CloseIdleConnectionsFor(rt)
	}
}
