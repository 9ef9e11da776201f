package seed

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/watchfan/watchfan/proxy/gate/request"
)

const (
	dialTimeout = 2 * time.Second
	// answerTimeout is how long one sibling has for the head of its answer. It asks kube-apiserver
	// for a review first.
	answerTimeout = 3 * time.Second
)

// transport returns what sends requests with the proxy's credential to siblings whose certificate has
// the given host name. It is made anew for each lane, from files that may have changed, because a lane
// starts seldom.
func (s *Siblings) transport(host string) (http.RoundTripper, error) {
	roots, err := s.roots()
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(s.config)
	cfg.TLSClientConfig.Insecure = false // whatever upstream's kubeconfig says
	cfg.TLSClientConfig.CAFile, cfg.TLSClientConfig.CAData = "", roots
	cfg.TLSClientConfig.ServerName = cmp.Or(s.opts.SeedTLSServerName, host)
	cfg.TLSClientConfig.NextProtos = nil // HTTP/1.1: one stream takes the whole connection
	cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	secure, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return rest.HTTPWrappersForConfig(cfg, &http.Transport{
		TLSClientConfig:     secure,
		DialContext:         dial,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		DisableKeepAlives:   true,
	})
}

// roots returns the certificates, in PEM and at least one, that siblings are verified by: the
// tier's authorities, or the replica's own certificate without those that may follow it in its
// file. With none, client-go would trust the system's authorities.
func (s *Siblings) roots() ([]byte, error) {
	file := cmp.Or(s.opts.SeedCertificateAuthority, s.certFile)
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certificates, err := cert.ParseCertsPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if s.opts.SeedCertificateAuthority == "" {
		certificates = certificates[:1]
	}
	return cert.EncodeCertificates(certificates...)
}

// ask requests a seed with an identity from the sibling at addr. The caller closes the response.
func (s *Siblings) ask(
	ctx context.Context, over http.RoundTripper, addr string, from *url.URL, accept string, want identity,
) (*http.Response, *Failure) {
	ctx, cancel := context.WithCancel(ctx)
	to := *from
	to.Scheme, to.Host = "https", addr
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &to,
		Header: http.Header{"Accept": {accept}, request.SeedHeader: {string(want)}},
	}).WithContext(ctx)
	s.via(req.Header)
	late := time.AfterFunc(answerTimeout, cancel)
	resp, err := over.RoundTrip(req)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("it has not answered within %s", answerTimeout)
	}
	if err != nil {
		cancel()
		return nil, judgeError(err)
	}
	resp.Body = &body{resp.Body, cancel}
	if failure := judge(resp, want); failure != nil {
		resp.Body.Close()
		return nil, failure
	}
	return resp, nil
}

// body is the body of an answer, with the context of its request.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close breaks the answer off.
func (b *body) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// judge returns why an answer is no seed; nil for a seed.
func judge(resp *http.Response, want identity) *Failure {
	theirs := resp.Header.Get(request.SeedHeader)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPreconditionFailed:
		if failure := want.differs(theirs); failure != nil {
			return failure
		}
		if resp.StatusCode != http.StatusOK {
			return fail(OtherVersion, "it refuses its own identity")
		}
		return nil
	case http.StatusLoopDetected:
		return fail(itself, "it is this replica")
	case http.StatusServiceUnavailable:
		return fail(Unfilled, "it does not have the objects")
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return fail(Refused, "it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return fail(OtherVersion, "it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// judgeError returns the Failure of a request that was not answered.
func judgeError(err error) *Failure {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var header tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &header) {
		return &Failure{Certificate, err}
	}
	return &Failure{NoSibling, err}
}
