package attack_test

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

var holdFor = flag.Duration("hold", 10*time.Second, "how long each attacker of TestHoldings stays")

// memoryLimit is the server's in TestHoldings, a third of the chart's.
const memoryLimit = 400 << 20

// crowdsLimit is the limit of a server that many connections or requests attack, each of which takes
// little. Connections have no bound but the memory, and requests that come and go leave garbage.
const crowdsLimit = 200 << 20

// lookEvery is the time between two looks at the resident memory. At one of liveEvery looks, if
// strangers attack, the server collects its garbage first, and says what it has in use.
const (
	lookEvery = 200 * time.Millisecond
	liveEvery = 12
)

// strangersShare is how much of the limit may be held for strangers.
const strangersShare = .1

// TestHoldings has one attacker after another make a server hold memory, and stay. Each meets a new
// watchfan with a memory limit, and a few honest clients, which come over new connections too. All of
// those are served, also those that come for the first time. The resident memory stays below the
// limit, and what is in use for strangers, without garbage, below a tenth of it: that is what the same server
// has in use more than before. If a known client holds
// too much, it is that client that is refused or cut. Attackers come from another address than honest
// clients, as a pod does.
//
// -only and -except choose attacks, and -target=kube-apiserver has kube-apiserver meet them.
func TestHoldings(t *testing.T) {
	t.Logf("each for %s", *holdFor)
	cluster := proxytest.RunCluster(t, proxytest.Binary(t, "DEVCLUSTER_BIN", "devcluster", "attack"))
	w, err := newWorld(t.Context(), cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range append([]holding{{name: "nobody"}}, holdings...) {
		if selected(h.name, *only, *except) && !(h.watchfan && *target == "kube-apiserver") {
			t.Run(h.name, func(t *testing.T) { h.test(t, w) })
		}
	}
}

// start starts the server that is attacked, and returns its limit. home is nil, or starts a cache beside it.
func (h holding) start(t *testing.T, w *world) (s *server, limit int64, home func()) {
	switch limit = memoryLimit; {
	case h.fallback:
		s, home = startFallback(t, w)
		return s, fallbackLimit, home
	case h.contained > 0:
		return startContained(t, w, h.contained, append([]string{"--history-bytes=8Mi"}, h.args...)...), h.contained, nil
	case h.crowd:
		limit = crowdsLimit
	}
	return startServer(t, w, fmt.Sprintf("--memory-limit=%d", limit), "--history-bytes=8Mi"), limit, nil
}

func (h holding) test(t *testing.T, w *world) {
	ctx := t.Context()
	s, limit, home := h.start(t, w)
	g := &guests{server: s, world: w, counts: make(map[string]int)}
	start(t, g.run)
	start(t, w.churn)
	proxytest.Sleep(ctx, 4*time.Second) // churn has filled the history
	before, err := s.level(ctx)
	without, live := 0.0, 0.0
	if h.stranger && err == nil {
		without, err = s.live(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.reset()

	book := newLedger()
	a := &attacker{campaign: campaign{Rate: 1, Secure: s.secure, Insecure: s.insecure, Admin: s.admin, Hostile: w.hostile},
		ledger: book, kind: kind{name: h.name}, from: net.IPv4(127, 0, 0, 2), rng: rand.New(rand.NewPCG(*seed, 1))}
	attack, end := context.WithTimeout(ctx, *holdFor)
	defer end()
	if h.attack != nil {
		start(t, func(context.Context) { h.attack(attack, a) })
	}
	resident := 0.0
	for n := 1; proxytest.Sleep(attack, lookEvery); n++ {
		if home != nil && n == int(*holdFor/lookEvery/2) {
			home()
		}
		// The resident memory does not need the admin port, which may be under attack.
		now, err := proxytest.ResidentMemory(s.pid)
		if err != nil {
			t.Error(err)
			break
		}
		resident = max(resident, float64(now))
		if !h.stranger || n%liveEvery != 0 {
			continue
		}
		if now, err := s.live(attack); err == nil {
			live = max(live, now)
		} else if attack.Err() == nil {
			t.Error(err)
		}
	}
	served := g.reset()
	under, err := s.level(ctx)
	if err != nil {
		t.Errorf("the server's metrics: %v", err)
	}
	t.Logf("%.0f MB resident at most, %.0f in use, %.0f before; %.2f processors, kube-apiserver %.2f; honest: %v; attacker: %s",
		resident/1e6, live/1e6, without/1e6, (under["cpu"]-before["cpu"])/holdFor.Seconds(),
		(under["apiserver"]-before["apiserver"])/holdFor.Seconds(), served, book)
	if *target == "kube-apiserver" {
		return // it is not on trial
	}
	if h.attack != nil {
		for _, wrong := range book.wrong([]string{h.name}) {
			t.Error(wrong)
		}
	}
	if resident > float64(limit) {
		t.Errorf("%.0f MB are resident, the limit is %.0f MB", resident/1e6, float64(limit)/1e6)
	}
	if held := live - without; h.stranger && held > strangersShare*memoryLimit {
		t.Errorf("%.0f MB are held for strangers", held/1e6)
	}
	if home != nil && served[brokenWrite] <= 4 { // one of each user
		delete(served, brokenWrite)
	}
	for what, n := range served {
		if !strings.HasSuffix(what, " ok") {
			t.Errorf("honest clients: %d × %s", n, what)
		}
	}
	for _, what := range guestKinds {
		if served[what+" ok"] == 0 {
			t.Errorf("no honest %s was answered", what)
		}
	}
	if home != nil {
		s.awaitCache(t, w)
	}
}

// guests are honest clients beside an attacker: of the tenants, of the probes, and new ones.
type guests struct {
	server *server
	world  *world

	mu     sync.Mutex
	counts map[string]int // by kind and answer
}

// guestKinds are what guests do.
var guestKinds = []string{"get", "list", "watch", "write", "new connection", "new token", "probe"}

// brokenWrite is what a write counts as whose connection, idle until then, is closed because its client is to go
// home. HTTP/1.1 has no way to say that before.
const brokenWrite = "write connection broken"

// reset returns the counts since the last call.
func (g *guests) reset() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.counts
	g.counts = make(map[string]int)
	return before
}

// note counts one answer.
func (g *guests) note(what string, code int, header http.Header, err error) {
	how := "ok"
	if err != nil || code >= 300 && code != http.StatusConflict {
		how = fault(code, header, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[what+" "+how]++
}

// run asks for everything again and again until ctx ends.
func (g *guests) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	repeat := func(pause time.Duration, f func()) {
		all.Go(func() {
			for f(); proxytest.Sleep(ctx, pause); f() {
			}
		})
	}
	ask := func(c *client, what string, r request) {
		if code, header, _, err := c.send(ctx, r); ctx.Err() == nil {
			g.note(what, code, header, err)
		}
	}
	for i, user := range g.world.honest[:4] {
		c := newClient(g.server.way(user))
		uri := "/api/v1/namespaces/" + user.tenant + "/configmaps"
		repeat(100*time.Millisecond, func() { ask(c, "get", request{method: "GET", uri: uri + "/cm-1"}) })
		repeat(200*time.Millisecond, func() { ask(c, "list", request{method: "GET", uri: uri + "?resourceVersion=0"}) })
		repeat(500*time.Millisecond, func() {
			ask(c, "watch", request{method: "GET", uri: uri + "?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dcm-2&timeoutSeconds=1"})
		})
		repeat(300*time.Millisecond, func() {
			ask(c, "write", request{method: "PATCH", uri: fmt.Sprintf("%s/cm-%d", uri, i), contentType: "application/merge-patch+json",
				body: fmt.Sprintf(`{"data":{"pad":"%s"}}`, strings.Repeat("w", 5000))})
		})
		repeat(500*time.Millisecond, func() {
			fresh := newClient(g.server.way(user))
			ask(fresh, "new connection", request{method: "GET", uri: uri + "/cm-2?resourceVersion=0"})
			fresh.close()
		})
	}
	admin := newClient(g.world.admin)
	n := 0
	repeat(500*time.Millisecond, func() {
		n++
		token, err := issueToken(ctx, admin, "t0", fmt.Sprintf("new-%d", time.Now().UnixNano()))
		if err != nil {
			return // kube-apiserver's own fault is not the server's
		}
		fresh := newClient(way{base: "https://" + g.server.secure, token: token, tls: &tls.Config{InsecureSkipVerify: true}})
		ask(fresh, "new token", request{method: "PATCH", uri: "/api/v1/namespaces/t0/configmaps/cm-3", contentType: "application/merge-patch+json",
			body: fmt.Sprintf(`{"data":{"n":"%d"}}`, n)})
		fresh.close()
	})
	if g.server.admin == "" {
		return
	}
	repeat(250*time.Millisecond, func() { // each probe of a kubelet has a connection of its own
		for _, page := range []string{"/livez", "/readyz", "/metrics"} {
			probe := newClient(way{base: "http://" + g.server.admin})
			ask(probe, "probe", request{method: "GET", uri: page})
			probe.close()
		}
	})
}

// churn writes the objects of nobody again and again, straight at kube-apiserver.
func (w *world) churn(ctx context.Context) {
	c := newClient(w.admin)
	defer c.close()
	for n := 0; ctx.Err() == nil; n++ {
		body := fmt.Sprintf(`{"data":{"pad":"%d%s"}}`, n, strings.Repeat("c", 20_000))
		_, _, _, _ = c.send(ctx, request{method: "PATCH", uri: fmt.Sprintf("/api/v1/namespaces/bulk/configmaps/bulk-%d", n%configMapsOfNobody),
			contentType: "application/merge-patch+json", body: body})
	}
}
