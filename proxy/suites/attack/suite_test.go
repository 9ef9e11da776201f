package attack_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

var (
	duration  = flag.Duration("duration", 30*time.Second, "how long attackers attack")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the attackers and of the honest clients")
	attackers = flag.Int("attackers", 60, "attackers at a time")
	rate      = flag.Float64("rate", .1, "multiple of the attackers' rates, see Rates in doc_test.go")
	only      = flag.String("only", "", "only kinds of attack whose names match this regular expression")
	except    = flag.String("except", "", "no kinds of attack whose names match this regular expression")
	target    = flag.String("target", "watchfan", "the server under attack: watchfan, or kube-apiserver for comparison")
)

// patience is how long anything may take that is not measured.
const patience = 60 * time.Second

// strictFrom is the duration from which on a run's latencies and memory are held to strict bounds.
// A shorter run may share its machine.
const strictFrom = 10 * time.Minute

// suite is one run.
type suite struct {
	world   *world
	server  *server
	objects []*object
	phase   atomic.Pointer[phase]
	sharing map[string]*http.Client // over HTTP/2, by user

	mu         sync.Mutex
	violations []string
}

// violate notes a mistake of the server.
func (s *suite) violate(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf("%s phase: %v", s.phase.Load().name, err))
}

func TestMain(m *testing.M) {
	if campaign := os.Getenv(campaignVariable); campaign != "" {
		if err := attack(campaign); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// TestAttack: see the package's documentation.
func TestAttack(t *testing.T) {
	if *target != "watchfan" && *target != "kube-apiserver" {
		t.Fatalf("-target=%s is unknown", *target)
	}
	t.Logf("seed %d, %d attackers at %g of their rates for %s", *seed, *attackers, *rate, *duration)
	ctx := t.Context()
	cluster := proxytest.RunCluster(t, proxytest.Binary(t, "DEVCLUSTER_BIN", "devcluster", "attack"))
	s := &suite{objects: newObjects(), sharing: make(map[string]*http.Client)}
	s.phase.Store(newPhase("first", time.Minute))
	var err error
	if s.world, err = newWorld(ctx, cluster, s.objects); err != nil {
		t.Fatal(err)
	}
	s.server = startServer(t, s.world)
	clients := newCrowd(s)
	stopClients := start(t, func(ctx context.Context) {
		crowd(len(clients), func(i int) { clients[i].run(ctx) })
	})
	stopWriters := start(t, s.writeBeats)
	if err := settle(clients, (*follower).begun); err != nil {
		t.Fatal(err)
	}

	v := &verdict{strict: *duration >= strictFrom}
	s.quiet(ctx, t, v)
	s.attack(ctx, t, v)
	s.phase.Store(newPhase("calm", time.Minute))
	v.after, v.returned = s.awaitLevel(ctx, v.quietLevels)

	stopWriters()
	v.settled = settle(clients, (*follower).behind)
	stopClients()
	v.stopped = s.server.stop(s.world)
	v.violations = s.violations
	t.Log("\n" + v.report())
	for _, wrong := range v.wrong() {
		if *target == "kube-apiserver" { // which is not on trial
			t.Log(wrong)
		} else {
			t.Error(wrong)
		}
	}
}

// start runs f until stop is called or the test ends.
func start(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// crowd calls f n times at once and waits for all.
func crowd(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// observe measures for a time.
func (s *suite) observe(ctx context.Context, name string, during time.Duration) (*phase, []level) {
	p := newPhase(name, max(during/12, 5*time.Second))
	s.phase.Store(p)
	var levels []level
	for end := time.Now().Add(during); time.Now().Before(end) && proxytest.Sleep(ctx, min(2*time.Second, during/10)); {
		if l, err := s.server.level(ctx); err == nil {
			levels = append(levels, l)
		}
	}
	return p, levels
}

// quiet measures while nobody attacks. The processors are as busy as under attack, with loops of
// the same lowest priority: what attackers take from honest clients by caches and shared cores is
// in both phases.
func (s *suite) quiet(ctx context.Context, t *testing.T, v *verdict) {
	burners := startAttackers(t, campaign{Seed: *seed})
	v.quiet, v.quietLevels = s.observe(ctx, "quiet", min(max(*duration/4, 15*time.Second), 2*time.Minute))
	if _, err := stopAttackers(burners); err != nil {
		t.Error(err)
	}
}

// attack measures while attackers attack.
func (s *suite) attack(ctx context.Context, t *testing.T, v *verdict) {
	version, err := s.version(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := campaign{Seed: *seed, Attackers: *attackers, Rate: *rate, Only: *only, Except: *except,
		Secure: s.server.secure, Insecure: s.server.insecure, Hostile: s.world.hostile, OldVersion: version}
	for _, k := range c.kinds() {
		v.attacks = append(v.attacks, k.name)
	}
	process := startAttackers(t, c)
	v.attacked, v.attackedLevels = s.observe(ctx, "attack", *duration)
	if v.ledger, err = stopAttackers(process); err != nil {
		t.Error(err)
	}
}

// version returns the resourceVersion of ConfigMaps now.
func (s *suite) version(ctx context.Context) (string, error) {
	admin := newClient(s.world.admin)
	defer admin.close()
	body, err := admin.must(ctx, request{method: "GET", uri: allConfigMaps + "limit=1", accept: "application/json"})
	_, rv, wrong := parseList(body)
	return rv, cmp.Or(err, wrong)
}

// awaitLevel waits until the server uses no more than in the quiet phase, and returns what it uses
// then. It is an error if that does not happen.
func (s *suite) awaitLevel(ctx context.Context, quiet []level) (l level, err error) {
	if len(quiet) == 0 {
		return l, errors.New("the quiet phase has no level")
	}
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline) && proxytest.Sleep(ctx, time.Second); {
		if l, err = s.server.level(ctx); err == nil {
			err = l.within(quiet[len(quiet)-1])
		}
		if err == nil {
			return l, nil
		}
	}
	return l, err
}
