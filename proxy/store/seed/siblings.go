package seed

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Siblings are the other replicas. Its methods may be called from any goroutine.
type Siblings struct {
	Disk *Disk // what this replica itself has kept; nil for nothing

	// Immutable.
	opts     *Options
	certFile string       // the replica's own serving certificate; "" for none in common
	config   *rest.Config // the credential
	via      func(http.Header)
	upstream auth.APIServer

	uids     *upstream.Answers[struct{}, uidAnswer]
	failures failures
}

// New returns the siblings that opts name. certFile is the replica's own serving certificate, and
// cfg has the credential for upstream, which siblings get too. via adds the proxy's name to a
// request. set gets the metrics.
func New(
	opts *Options, disk *Disk, certFile string, cfg *rest.Config, up auth.APIServer, via func(http.Header),
	set *metrics.Set, guard *exchange.Guard,
) *Siblings {
	s := &Siblings{
		Disk: disk,
		opts: opts, certFile: certFile, config: cfg, via: via, upstream: up,
		uids: upstream.NewAnswers[struct{}, uidAnswer](guard),
	}
	s.failures.init(set)
	return s
}

// End ends the questions that are under way, and waits for them.
func (s *Siblings) End() { s.uids.End() }

// Named reports whether there may be siblings.
func (s *Siblings) Named() bool { return s != nil && len(s.opts.SeedFrom) > 0 }

// address is the address of one sibling, and its name.
type address struct{ addr, host string }

// mostAsked bounds how many siblings are asked for one lane.
const mostAsked = 16

// addresses returns the siblings' addresses in random order, mostAsked at most. The error is that of a name
// without an address.
func (s *Siblings) addresses(ctx context.Context) (all []address, err error) {
	for _, name := range s.opts.SeedFrom {
		host, port := split(name)
		ips, failed := net.DefaultResolver.LookupHost(ctx, host)
		if failed != nil {
			err = &Failure{NoSibling, failed}
		}
		for _, ip := range ips {
			all = append(all, address{net.JoinHostPort(ip, port), host})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), mostAsked)], err
}

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
