package attack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// The honest clients, 200 of them.
const (
	resumingWatchers = 50 // list, watch, and go on from where a stream ended; JSON
	beginningWatches = 60 // begin anew with initial events; protobuf
	informers        = 30 // list whatever there is, and watch; again and again
	readers          = 40
	largeWriters     = 20
)

type runner interface{ run(ctx context.Context) }

// newCrowd returns the honest clients.
func newCrowd(s *suite) (all []runner) {
	next := func(i int, kind string) honest {
		n, w := len(all), s.way(i)
		return honest{suite: s, name: fmt.Sprintf("client %d, %s as %s", n, kind, w.name), client: newClient(w),
			rng: rand.New(rand.NewPCG(*seed, uint64(1000+n)))}
	}
	watch := func(count int, kind string, protobuf, relists bool) {
		for i := range count {
			h := next(i, kind)
			f := &follower{scope: drawScope(h.rng, h.client.way.tenant), objects: s.objects}
			all = append(all, &watcher{honest: h, follower: f, protobuf: protobuf, relists: relists, gzip: i%4 == 0})
		}
	}
	watch(resumingWatchers, "watcher that resumes", false, false)
	watch(beginningWatches, "watcher with initial events", true, false)
	watch(informers, "informer", false, true)
	for i := range readers {
		all = append(all, &reader{next(i, "reader"), s.objects})
	}
	for i := range largeWriters {
		all = append(all, &largeWriter{next(i, "writer of 200 KB")})
	}
	return all
}

// way returns the way of the i-th client: most are tenants, a few are controllers, and one in ten
// comes by the insecure port. Half of the others speak HTTP/2; those of one user share connections.
func (s *suite) way(i int) way {
	if i%10 == 9 {
		return s.server.plain(s.world.admin)
	}
	w := s.server.way(s.world.honest[i%len(s.world.honest)])
	if i/2%2 == 0 {
		return w
	}
	if s.sharing[w.name] == nil {
		s.sharing[w.name] = proxytest.HTTP2Client(&http.Transport{TLSClientConfig: w.tls,
			TLSHandshakeTimeout: patience})
	}
	w.http2 = s.sharing[w.name]
	return w
}

// drawScope draws what a client of a tenant follows. A client that may see everything follows a
// resource of all tenants.
func drawScope(rng *rand.Rand, tenant string) scope {
	s := scope{tenant: tenant}
	kind := beatKinds[rng.IntN(beatsOfTenant)]
	s.resource = kind.resource
	switch rng.IntN(5) {
	case 0:
		s.gold = true
	case 1:
		s.name = kind.name
	}
	return s
}

// settle waits until check returns nil for all watchers.
func settle(clients []runner, check func(*follower) error) error {
	deadline := time.Now().Add(2 * patience)
	for _, c := range clients {
		w, ok := c.(*watcher)
		for ok {
			err := check(w.follower)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}
