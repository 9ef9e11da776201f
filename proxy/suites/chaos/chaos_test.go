package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

var (
	duration = flag.Duration("duration", 20*time.Second, "how long faults are injected")
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the faults and of the clients")
	keep     = flag.String("record", "", "file for everything that clients are told, which the program in judge reads")
	only     = flag.String("only", "", "inject only faults whose names contain this text")
	watches  = flag.Int("watches", 0, "watches of TestSoak; 0 skips it")
	observed = flag.Int("observed", 8, "clients that another watchfan observes, each with one watch")
	rate     = flag.Float64("rate", 20, "writes a second of TestSoak")
)

const widgets = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// TestChaos: see the package's documentation.
func TestChaos(t *testing.T) {
	s := newSuite(t, "chaos", "watchfan-race", chaosWork)
	plan := schedule(rand.New(rand.NewPCG(*seed, 0)), 5000)
	t.Logf("seed %d, %s", *seed, *duration)
	s.sibling = s.startSibling()
	s.enter(s.startWatchfan(s.relayed, "--idle-timeout=20s", "--client-buffer-frames=200", "--history-frames=400",
		"--config", s.quietConfig(), "--seed-from", s.sibling.address()))
	s.observing = s.startWatchfan(s.relayed, "--config", s.observeAll())
	s.watch()
	clients, following, writers := s.startClients(), s.startInformers(), s.startWriters()
	took, err := s.recover()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d watchers watch within %s", len(s.watchers), took.Round(time.Millisecond))

	r := s.inject(plan)
	s.rest(writers)
	if err := s.compareInformers(following); err != nil {
		s.violate("informers", err, "")
	}
	s.judgeObserved()
	s.end(clients, r)
	for what, least := range map[string]int{"events": 1000, "versions with kube-apiserver's bytes": 100,
		"versions with these less managedFields": 100, "versions in a quiet view": 100} {
		if n := s.oracle.counts.of(what); n < least {
			t.Errorf("%d %s: this is too little to show anything", n, what)
		}
	}
	if n := s.counts.of("reads"); n < 20 {
		t.Errorf("%d reads: this is too little to show anything", n)
	}
}

// newSuite starts a cluster, the truth from its first revision on, and the network to it. make's target
// builds the program, a watchfan.
func newSuite(t *testing.T, target, program string, work workload) *suite {
	s := &suite{t: t, work: work, truth: newTruth(), acked: make(map[string]uint64), sharing: make(map[string]*http.Client)}
	devcluster := proxytest.Binary(t, "DEVCLUSTER_BIN", "devcluster", target)
	s.program = proxytest.Binary(t, "WATCHFAN_BIN", program, target)
	s.oracle = newOracle(s.truth)
	if *keep != "" {
		var err error
		if s.record, err = newRecord(*keep, *seed); err != nil {
			t.Fatal(err)
		}
		s.truth.record = s.record
	}
	s.cluster = proxytest.RunCluster(t, devcluster, "--apiserver-arg", "shutdown-watch-termination-grace-period=2s")
	s.following = s.running()
	s.following.Go(func() { s.truth.follow(s.following.ctx, s.cluster.Ready.EtcdEndpoint) })
	config, err := s.cluster.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	s.straight = way{name: "kube-apiserver", base: s.cluster.Ready.Server, token: s.token("admin"), tls: config}
	s.admin = s.straight.client()
	s.readGates()
	s.prepare()
	s.network()
	s.certify("dev-reader")
	return s
}

// enter makes p the watchfan in which faults are injected.
func (s *suite) enter(p *watchfan) {
	s.watchfan = p
	s.entrance = proxytest.NewRelay(s.t, fmt.Sprintf("127.0.0.1:%d", p.ports.secure))
}

// rest ends the writers, and waits until every client has received the rest.
func (s *suite) rest(writers *running) {
	writers.stop()
	s.calm.Store(true)
	if err := s.settle(); err != nil {
		s.t.Error(err)
	}
}

// end ends the clients and each watchfan, and notes what any of these has done wrong in its life.
func (s *suite) end(clients *running, r *report) {
	clients.stop()
	for _, p := range s.replicas {
		if _, err := p.end(syscall.SIGTERM); err != nil {
			s.t.Error(err)
		}
		for _, fault := range p.logFaults() {
			s.t.Errorf("watchfan's log: %s", fault)
		}
	}
	s.following.stop()
	if err := s.record.close(); err != nil {
		s.t.Errorf("record: %v", err)
	}
	s.t.Logf("seed %d, %s\nfaults:\n%sclients:\n%sthey:\n%s%s%d changes in etcd, %s, %d violations", *seed,
		time.Since(started).Round(time.Second), r, &s.clients, &s.counts, &s.oracle.counts, s.truth.total(), s.watchfan.relists,
		len(s.violations))
}

// readGates asks kube-apiserver for feature gates. Before 1.34 WatchList is off by default.
func (s *suite) readGates() {
	page, err := s.admin.get(s.t.Context(), "/metrics", nil, jsonForm)
	if err != nil || page.status != http.StatusOK {
		s.t.Fatalf("kube-apiserver's metrics: %d %v", page.status, err)
	}
	enabled := func(gate string) bool {
		return proxytest.SumMetric(string(page.body), "kubernetes_feature_enabled", fmt.Sprintf("name=%q", gate)) == 1
	}
	s.modern, s.shards = enabled("WatchList"), enabled("ShardedListAndWatch")
}

// running are goroutines that stop ends, or the end of the test.
type running struct {
	sync.WaitGroup
	ctx    context.Context
	cancel func()
}

func (s *suite) running() *running {
	r := new(running)
	r.ctx, r.cancel = context.WithCancel(s.t.Context())
	s.t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	r.Wait()
}

// startClients starts the watchers and the readers.
func (s *suite) startClients() *running {
	clients := s.running()
	for _, w := range s.watchers {
		s.clients.add(w.client.way.name + " " + w.manner.name)
		if w.cursor.form.lean {
			s.clients.add("of these, without managedFields")
		}
		if w.cursor.form.quiet {
			s.clients.add("of these, in a quiet view")
		}
		if h := w.cursor.filter.half; h != bothHalves {
			s.clients.add("of these, of the " + h.String())
		}
		clients.Go(func() { w.run(clients.ctx) })
		pause(clients.ctx, s.work.pace)
	}
	for i, w := range append(s.entering()[:socketWay], s.straight) {
		r := &reader{suite: s, name: "reader by " + w.name, client: w.client(),
			rng: rand.New(rand.NewPCG(*seed, uint64(1000+i)))}
		s.clients.add(r.name)
		clients.Go(func() { r.run(clients.ctx) })
	}
	return clients
}

// startInformers starts the informers: half of them by the insecure port, half over TLS.
func (s *suite) startInformers() []*informer {
	all := informers(s.t)
	for i, one := range all {
		var secure []string
		if i%2 == 1 {
			secure = []string{"--token-file", s.cluster.Ready.TokenFiles["reader"], "--ca-file", s.certFile}
		}
		if err := one.start(s.waysOf(s.watchfan)[i%2].base, secure...); err != nil {
			s.t.Fatal(err)
		}
		s.clients.add("informers of client-go " + one.Release)
	}
	return all
}

// startWriters starts the writers.
func (s *suite) startWriters() *running {
	all := s.running()
	for i := range writers {
		w := &writer{suite: s, number: i, client: s.straight.client(), rng: rand.New(rand.NewPCG(*seed, uint64(2000+i)))}
		all.Go(func() { w.run(all.ctx) })
	}
	return all
}

// prepare creates the namespaces, the probe, and the custom resource that the writers write to.
func (s *suite) prepare() {
	ctx := s.t.Context()
	create := func(path, body string) {
		if _, err := s.admin.write(ctx, http.MethodPost, path, body); err != nil {
			s.t.Fatal(err)
		}
	}
	create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	for _, ns := range namespaces {
		create("/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	}
	create(collection("configmaps", "chaos-a"), `{"metadata":{"name":"probe"},"data":{"k":"v"}}`)
	if !await(patience, func() bool {
		a, err := s.admin.get(ctx, collection("widgets", ""), nil, jsonForm)
		return err == nil && a.status == http.StatusOK
	}) {
		s.t.Fatal("there is no custom resource")
	}
}

// network starts the relay, on a link of its own if the machine can have one, and writes the kubeconfig
// that leads to it.
func (s *suite) network() {
	if s.link, s.noLink = newLink(s.t); s.noLink == nil {
		s.relay = proxytest.NewRelayAt(s.t, s.link.listener, s.cluster.Address())
	} else {
		s.t.Logf("IMPOSSIBLE HERE: a network of our own, whose link can be cut (%v); the relay on loopback does what it can", s.noLink)
		s.relay = proxytest.NewRelay(s.t, s.cluster.Address())
	}
	s.relayed = filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := s.cluster.KubeconfigAt(s.relay.Address(), s.relayed); err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) token(user string) string {
	token, err := s.cluster.Token(user)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// watch makes the watchers: each filter, form, beginning and manner, in many combinations. Some are
// straight at kube-apiserver, to show that the oracle is right and which bytes to expect.
func (s *suite) watch() {
	add := func(w way, f form, sel filter, b beginning, m manner) {
		if m == slow || m == stalling || m == straying {
			w.window = 4096
		}
		s.watchers = append(s.watchers, s.newWatcher(len(s.watchers), s.connect(w), f, sel, b, m))
	}
	everything, ways := allFilters[0], s.entering()
	beginnings := []beginning{byList, byWatchList, byStaleList, byStaleWatch, byForgetting}
	for i, f := range allForms { // recover waits for these
		add(ways[i], f, everything, byList, steady)
		add(s.straight, f, everything, byWatchList, steady)
		add(s.straight, f, allFilters[8], byList, steady)
	}
	add(s.straight, jsonForm, allFilters[3], byList, steady)
	for i, sel := range allFilters {
		for k, m := range []manner{steady, steady, leaving, []manner{slow, stalling, leaving}[i%3]} {
			w, f := ways[(i+k)%4], allForms[(i+k*k)%4]
			w.gzip = (i+k/2)%2 == 0
			w.socket = !w.gzip && !w.http2 && i%3 != 0
			if (i+k)%3 == 0 {
				f = f.dropping()
			}
			sel.half = bothHalves
			if i%2 == 0 && k/2 == i/2%2 { // two of the four follow the halves of every other filter
				sel.half = half(1 + k%2)
				w.socket = false // its handshake would not say who answers
			}
			add(w, f, sel, beginnings[(i+2*k)%5], m)
		}
	}
	for i, kind := range []int{plainWay, socketWay, http2Way, http2Way} {
		f := []form{jsonForm, jsonForm.dropping()}[i%2]
		add(ways[kind], f, everything, byList, slow)
		add(ways[kind], f, everything, byWatchList, stalling)
	}
	s.wander(add)
	s.beQuiet(add)
	for i, ways := 0, s.waysOf(s.observing); i < *observed && s.modern; i++ {
		add(ways[i%4], allForms[i%3], allFilters[i%len(allFilters)], beginnings[i%5], steady)
		w := s.watchers[len(s.watchers)-1]
		w.at, w.cursor.relists = s.observing, s.observing.relists
	}
}

// wander makes the watchers that go to and fro between watchfan and its sibling.
func (s *suite) wander(add func(way, form, filter, beginning, manner)) {
	ours, theirs := s.waysOf(s.watchfan), s.waysOf(s.sibling.watchfan)
	wander := func(kind int, f form, sel filter, b beginning, m manner) {
		add(ours[kind], f, sel, b, m)
		s.watchers[len(s.watchers)-1].elsewhere = &server{theirs[kind].client(), s.sibling.watchfan}
	}
	for i, kind := range []int{plainWay, tokenWay, http2Way, socketWay} {
		for k, b := range []beginning{byList, byWatchList} {
			f := []form{jsonForm, protobufMetaForm}[k]
			m := wandering
			if (i+k)%2 == 1 {
				f, m = f.dropping(), straying
			}
			wander(kind, f, allFilters[(3*i+5*k)%len(allFilters)], b, m)
		}
	}
	wander(plainWay, jsonForm, allFilters[2].of(lowerHalf), byList, straying)
	wander(http2Way, protobufForm.dropping(), allFilters[2].of(upperHalf), byWatchList, wandering)
}

// inject follows the plan until the time is over.
func (s *suite) inject(plan []fault) *report {
	r := &report{impossible: make(map[string]string), recovery: make(map[string][]time.Duration)}
	begin := time.Now()
	for i, f := range plan {
		if time.Since(begin) > *duration || s.t.Failed() { //testlint:allow elapsed faults are injected for so long
			break
		}
		if !strings.Contains(f.kind.name, *only) || r.impossible[f.kind.name] != "" {
			continue
		}
		pause(s.t.Context(), max(f.after, f.at-time.Since(begin)))
		if err := s.crashed(); err != nil {
			s.violate("watchfan", err, "")
			break
		}
		s.quiet.Store(0)
		proof, err := f.kind.inject(s, f)
		if err != nil && strings.HasPrefix(err.Error(), errImpossible.Error()) {
			r.impossible[f.kind.name] = err.Error()
			s.t.Logf("fault %d, %s: %v", i+1, f, err)
			continue
		}
		if err != nil {
			s.t.Errorf("fault %d, %s: %v", i+1, f, err)
			break
		}
		took, err := s.recover()
		if err != nil {
			s.violate("recovery from "+f.kind.name, err, "")
			break
		}
		s.t.Logf("fault %d, %s: %s; recovered within %s", i+1, f, proof, took.Round(time.Millisecond))
		r.recovery[f.kind.name] = append(r.recovery[f.kind.name], took)
	}
	return r
}

// crashed returns an error if a watchfan has ended by itself. It is called between faults.
func (s *suite) crashed() error {
	for _, p := range s.replicas {
		if err := p.crashed(); err != nil {
			return err
		}
	}
	return nil
}
