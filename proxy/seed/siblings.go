package seed

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Siblings are the other replicas. Its methods may be called from any goroutine.
type Siblings struct {
	// Immutable.
	opts     *Options
	certFile string       // the replica's own serving certificate; "" for none in common
	config   *rest.Config // the credential
	via      func(http.Header)

	cluster  clusterUID
	failures failures
}

// New returns the siblings that opts name. certFile is the replica's own serving certificate, and cfg
// has the credential for upstream, which siblings get too. via adds the proxy's name to a request.
func New(opts *Options, certFile string, cfg *rest.Config, up auth.APIServer, via func(http.Header)) *Siblings {
	return &Siblings{opts: opts, certFile: certFile, config: cfg, via: via, cluster: clusterUID{upstream: up}}
}

// End ends the questions that are under way, and waits for them.
func (s *Siblings) End() { s.cluster.calls.End() }

// Named reports whether there may be siblings.
func (s *Siblings) Named() bool { return s != nil && len(s.opts.SeedFrom) > 0 }

const (
	// findTimeout is how long all siblings together have for an answer. Siblings that do not have the
	// objects say so within milliseconds.
	findTimeout = 5 * time.Second
	// mostAsked bounds how many siblings are asked for one lane.
	mostAsked = 16
)

// Open asks siblings in random order until one has the objects of a collection, and returns its
// answer, which has no end of its own: the caller reads the initial events and closes it. build is
// the build of kube-apiserver that must have written them. addr is the sibling's. The error is a
// *Failure. ctx lasts for the body too.
func (s *Siblings) Open(
	ctx context.Context, path, query, accept string, build upstream.Build,
) (resp *http.Response, addr string, err error) {
	find, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	want, err := s.Identity(find, build)
	if err != nil {
		return nil, "", err
	}
	from := &url.URL{Path: path, RawQuery: query}
	var failed error = fail(NoSibling, "--seed-from has no other address")
	for _, to := range s.addresses(find, &failed) {
		if find.Err() != nil {
			break
		}
		c, err := s.newClient(to.host)
		if err != nil {
			return nil, "", &Failure{Unusable, err}
		}
		if resp, err = c.ask(ctx, to.addr, from, accept, identity(want)); err == nil {
			return resp, to.addr, nil
		}
		if !errors.Is(err, errSelf) {
			failed = worse(failed, err)
		}
	}
	return nil, "", failed
}

// worse returns the error of two that says more: a sibling that has nothing, or does not answer, is
// usual.
func worse(a, b error) error {
	var f *Failure
	if errors.As(a, &f) && f.Reason != NoSibling && f.Reason != Unfilled {
		return a
	}
	return b
}

// address is the address of one sibling, and its name.
type address struct{ addr, host string }

// addresses returns the siblings' addresses in random order. If a name has no address, failed says
// so.
func (s *Siblings) addresses(ctx context.Context, failed *error) (all []address) {
	for _, name := range s.opts.SeedFrom {
		host, port := split(name)
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			*failed = &Failure{NoSibling, err}
		}
		for _, ip := range ips {
			all = append(all, address{net.JoinHostPort(ip, port), host})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), mostAsked)]
}
