package seed

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
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

	mu     sync.Mutex
	silent map[string]time.Time // addresses that have not answered, and until when they are not asked
}

// New returns the siblings that opts name. certFile is the replica's own serving certificate, and
// cfg has the credential for upstream, which siblings get too. via adds the proxy's name to a
// request.
func New(
	opts *Options, certFile string, cfg *rest.Config, up auth.APIServer, via func(http.Header),
	m *Metrics, guard *exchange.Guard,
) *Siblings {
	return &Siblings{
		opts: opts, certFile: certFile, config: cfg, via: via,
		cluster:  clusterUID{upstream.NewAnswers[struct{}, uidAnswer](guard), up},
		failures: failures{metrics: m},
	}
}

// End ends the questions that are under way, and waits for them.
func (s *Siblings) End() { s.cluster.End() }

// Named reports whether there may be siblings.
func (s *Siblings) Named() bool { return s != nil && len(s.opts.SeedFrom) > 0 }

// address is the address of one sibling, and its name.
type address struct{ addr, host string }

const (
	// mostAsked bounds how many siblings are asked for one lane.
	mostAsked = 16
	// silentFor is for how long a sibling is not asked that took dialTimeout or longer and did not
	// answer. Otherwise each lane would wait for a sibling whose node is gone.
	silentFor = time.Minute
)

// addresses returns the addresses of siblings that may answer, in random order, mostAsked at most.
// The error is that of a name without an address.
func (s *Siblings) addresses(ctx context.Context) (all []address, err error) {
	for _, name := range s.opts.SeedFrom {
		host, port := split(name)
		ips, failed := net.DefaultResolver.LookupHost(ctx, host)
		if failed != nil {
			err = &Failure{NoSibling, failed}
		}
		for _, ip := range ips {
			if addr := net.JoinHostPort(ip, port); !s.isSilent(addr) {
				all = append(all, address{addr, host})
			}
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), mostAsked)], err
}

// isSilent reports whether a sibling has not answered lately.
func (s *Siblings) isSilent(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.silent[addr])
}

func (s *Siblings) setSilent(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent == nil {
		s.silent = make(map[string]time.Time)
	}
	now := time.Now()
	maps.DeleteFunc(s.silent, func(_ string, until time.Time) bool { return now.After(until) })
	s.silent[addr] = now.Add(silentFor)
}
