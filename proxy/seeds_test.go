package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// tier is what replicas have in common: a serving certificate.
type tier struct{ certFile, keyFile string }

func newTier(t *testing.T) tier {
	t.Helper()
	certFile, keyFile, err := downstream.SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tier{certFile, keyFile}
}

// replica starts a replica whose siblings are at the given addresses.
func (r tier) replica(t *testing.T, up *proxytest.Server, siblings ...string) *fan {
	t.Helper()
	return startFan(t, up, r.options(siblings...))
}

// options makes a server a replica whose siblings are at the given addresses.
func (r tier) options(siblings ...string) func(*proxy.Options) {
	return func(o *proxy.Options) {
		o.SecurePort, o.BindAddress, o.AdminPort = proxy.AnyPort, "127.0.0.1", proxy.AnyPort
		o.Downstream.TLSCertFile, o.Downstream.TLSPrivateKeyFile = r.certFile, r.keyFile
		o.Seed.SeedFrom = siblings
	}
}

// resident makes a server fill the lane of ConfigMaps when it starts.
func resident(o *proxy.Options) { o.Cached.ResidentResources = []string{"configmaps"} }

func addressOf(f *fan) string { return strings.TrimPrefix(f.secure, "https://") }

// anyList returns any state of the ConfigMaps.
func (f *fan) anyList() string {
	f.t.Helper()
	resp, body := f.get(cmsPath + "?resourceVersion=0")
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("list: %s %s", resp.Status, body)
	}
	return body
}

// The second replica is filled from the first: kube-apiserver lists once, and has one watch of each
// replica. Both serve the same bytes, and no event is missing.
func TestSeed(t *testing.T) {
	t.Parallel()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	first := tier.replica(t, up)
	for i := range 250 {
		first.cms.Put("ns", fmt.Sprintf("c%03d", i), "1", "app", "x")
	}
	want := first.anyList()
	second := tier.replica(t, up, "127.0.0.1:1", addressOf(first))
	if got := second.anyList(); got != want {
		t.Errorf("the second replica lists %d bytes, the first %d", len(got), len(want))
	}
	second.awaitLog("Filled from a sibling", "objects=250")
	if f := second.theLane().Filled; f == nil || f.Source != "sibling" || f.Address != addressOf(first) || f.Objects != 250 || f.Seconds <= 0 || f.NoSibling != "" {
		t.Errorf("the second replica's lane: filled %+v", f)
	}
	if f := first.theLane().Filled; f == nil || f.Source != "upstream" || f.Address != "" || f.NoSibling != "" {
		t.Errorf("the first replica's lane: filled %+v", f)
	}
	w := second.watch(anyState)
	rv := first.cms.Put("ns", "c000", "2")
	w.AwaitVersion(rv)
	last := first.cms.Delete("ns", "c001")
	w.AwaitVersion(last)
	if lists, watches := up.Count(proxytest.WatchList)+up.Count(proxytest.List), up.Count(proxytest.Watch); lists != 1 || watches != 1 {
		t.Errorf("%d lists and %d watches upstream, want one for the first replica and one for the second", lists, watches)
	}
	third := tier.replica(t, up, addressOf(second))
	third.anyList()
	third.awaitLog("Filled from a sibling", "objects=249")
	if lists := up.Count(proxytest.WatchList); lists != 1 {
		t.Errorf("%d lists upstream", lists)
	}
	third.passed(0)
	alone := tier.replica(t, up, "127.0.0.1:1")
	alone.anyList()
	if f := alone.theLane().Filled; f == nil || f.Source != "upstream" || f.NoSibling != "no_sibling" {
		t.Errorf("a replica whose sibling does not answer: filled %+v", f)
	}
}

// A seed does not count as newer than a read that waits: a consistent read behind it is proven at
// kube-apiserver.
func TestSeedIsNoProof(t *testing.T) {
	t.Parallel()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	source := proxytest.NewServer(t)
	source.Collection(proxytest.ConfigMaps).Put("ns", "old", "1")
	up.Collection(proxytest.ConfigMaps).Put("ns", "old", "1")
	up.On(proxytest.Watch, 1, func(c *proxytest.Call) { // a watch that brings nothing
		c.Write("")
		c.Hang()
	})
	up.Collection(proxytest.ConfigMaps).Put("ns", "new", "1")
	f := startFan(t, up, tier.options(scriptedSibling(t, tier, source, nil)), proxy.NoneAlone)
	if body := f.anyList(); strings.Contains(body, `"name":"new"`) {
		t.Fatalf("the sibling had it: %s", body)
	}
	f.awaitLog("Filled from a sibling")
	if _, body := f.get(cmsPath); !strings.Contains(body, `"name":"new"`) {
		t.Errorf("a consistent list is as old as the seed: %s", body)
	}
}

// A replica that knows that its cache is wrong fills no other, until it has listed again.
func TestSeedKnownWrong(t *testing.T) {
	t.Parallel()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	first := startFan(t, up, tier.options(), func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = time.Second })
	first.cms.Put("ns", "a", "1")
	first.watch(anyState).Await(2)
	up.On(proxytest.WatchList, 1, (*proxytest.Call).Hang) // the list that would mend it
	first.cms.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", up.Bump(1)))
	first.awaitLog("The cache is not what upstream is")
	up.AwaitCount(proxytest.WatchList, 2)
	second := tier.replica(t, up, addressOf(first))
	if got := second.anyList(); strings.Contains(got, "ghost") {
		t.Errorf("the second replica lists %s", got)
	}
	if f := second.theLane().Filled; f == nil || f.NoSibling != "unfilled" {
		t.Errorf("the second replica's lane: filled %+v", f)
	}
}

// scriptedSibling serves what source has as a sibling with the tier's certificate does. before may
// answer in its place; it reports whether it has.
func scriptedSibling(
	t *testing.T, tier tier, source *proxytest.Server, before func(http.ResponseWriter, *http.Request) bool,
) (addr string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(tier.certFile, tier.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+ownToken {
			t.Errorf("the sibling was shown %q", r.Header.Get("Authorization"))
		}
		w.Header().Set(request.SeedHeader, r.Header.Get(request.SeedHeader))
		if before == nil || !before(w, r) {
			source.Config.Handler.ServeHTTP(w, r)
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String()
}

// added is an ADDED event of an object with n bytes of data.
func added(name string, rv uint64, n int) string {
	return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns",`+
		`"uid":"u","resourceVersion":"%d"},"data":{"x":%q}}}`, name, rv, strings.Repeat("x", n)) + "\n"
}

// Whatever is wrong with a sibling, the lane is listed at kube-apiserver, once. Nobody notices but
// the log and the metrics.
func TestSeedFaults(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	header := func(change func(string) string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set(request.SeedHeader, change(r.Header.Get(request.SeedHeader)))
			return false
		}
	}
	script := func(do func(*proxytest.Call)) func(up, source *proxytest.Server) {
		return func(_, source *proxytest.Server) { source.On(proxytest.WatchList, 1, do) }
	}
	for name, tc := range map[string]struct {
		reason  string
		before  func(http.ResponseWriter, *http.Request) bool
		prepare func(up, source *proxytest.Server)
	}{
		"unfilled":       {"unfilled", status(503), nil},
		"forbidden":      {"refused", status(403), nil},
		"busy":           {"refused", status(429), nil},
		"unknown path":   {"other_version", status(404), nil},
		"plain watchfan": {"other_version", header(func(string) string { return "" }), nil},
		"other version":  {"other_version", header(func(s string) string { return "2" + s[1:] }), nil},
		"other cluster":  {"other_cluster", header(func(s string) string { return s[:2] + "x" + s[3:] }), nil},
		"other build":    {"other_build", header(func(s string) string { return s[:len(s)-1] + "x" }), nil},
		"killed":         {"broken", nil, script(func(c *proxytest.Call) { c.Write(added("lie", 101, 0)); c.Abort() })},
		"ended":          {"broken", nil, script(func(c *proxytest.Call) { c.Write(added("lie", 101, 0)) })},
		"silent":         {"slow", nil, script(func(c *proxytest.Call) { c.Write(added("lie", 101, 0)); c.Hang() })},
		"no answer":      {"no_sibling", func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, nil},
		"error event":    {"broken", nil, script(func(c *proxytest.Call) { c.Write(proxytest.ErrorEvent(410, "Expired", "x")) })},
		"no sense":       {"broken", nil, script(func(c *proxytest.Call) { c.Write("{}\n") })},
		"another form": {"broken", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(200)
			return true
		}, nil},
		"another encoding": {"broken", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			fmt.Fprint(w, added("lie", 101, 0))
			return true
		}, nil},
		"newer than it is": {"broken", nil, script(func(c *proxytest.Call) {
			c.Write(added("lie", 105, 0), proxytest.ConfigMaps.Bookmark(101, true))
			c.Hang()
		})},
		"in the future": {"ahead", nil, func(_, source *proxytest.Server) { source.Bump(1000) }},
		"too old": {"too_old", nil, func(up, _ *proxytest.Server) {
			up.Collection(proxytest.ConfigMaps).Put("ns", "later", "1")
			up.Collection(proxytest.ConfigMaps).Compact()
		}},
		"too old, says the head": {"too_old", nil, func(up, _ *proxytest.Server) {
			up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(410, "Expired", "too old", 0) })
		}},
		"upstream refuses the watch": {"broken", nil, func(up, _ *proxytest.Server) {
			up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(500, "InternalError", "x", 0) })
		}},
		"unknown cluster": {"unidentified", nil, func(up, _ *proxytest.Server) {
			up.On(proxytest.Identity, 10, func(c *proxytest.Call) { c.Fail(403, "Forbidden", "x", 0) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, source, tier := proxytest.NewTLSServer(t), proxytest.NewServer(t), newTier(t)
			up.Collection(proxytest.ConfigMaps).Put("ns", "a", "1")
			source.Collection(proxytest.ConfigMaps).Put("ns", "a", "1")
			if tc.prepare != nil {
				tc.prepare(up, source)
			}
			f := tier.replica(t, up, scriptedSibling(t, tier, source, tc.before))
			if body := f.anyList(); !strings.Contains(body, `"name":"a"`) || strings.Contains(body, "lie") {
				t.Errorf("got %s", body)
			}
			if n := up.Count(proxytest.WatchList); n != 1 {
				t.Errorf("%d lists upstream, want 1", n)
			}
			if lines := f.log.with("No sibling has filled the lane", "reason="+tc.reason+" ", "todo="); len(lines) != 1 {
				t.Errorf("the reason is not logged once as %s: %q", tc.reason, f.log.with("No sibling has filled"))
			}
			w := f.watch(anyState)
			w.AwaitVersion(up.Collection(proxytest.ConfigMaps).Put("ns", "b", "1"))
			f.passed(0)
		})
	}
}

// If one sibling fails, whenever that shows, the next one fills the lane. Nothing of the first is
// left.
func TestSeedNext(t *testing.T) {
	refuse := func(event bool) func(up, source *proxytest.Server) {
		return func(up, source *proxytest.Server) {
			source.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
				c.Write(added("lie", 101, 0), proxytest.ConfigMaps.Bookmark(101, true))
				c.Hang()
			})
			up.On(proxytest.Watch, 1, func(c *proxytest.Call) {
				if event {
					c.Write(proxytest.ErrorEvent(410, "Expired", "too old"))
				} else {
					c.Fail(410, "Expired", "too old", 0)
				}
			})
		}
	}
	for name, prepare := range map[string]func(up, source *proxytest.Server){
		"killed": func(_, source *proxytest.Server) {
			source.On(proxytest.WatchList, 1, func(c *proxytest.Call) { c.Write(added("lie", 101, 0)); c.Abort() })
		},
		"silent": func(_, source *proxytest.Server) {
			source.On(proxytest.WatchList, 1, func(c *proxytest.Call) { c.Write(added("lie", 101, 0)); c.Hang() })
		},
		"in the future": func(_, source *proxytest.Server) {
			source.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
				c.Write(added("lie", 101, 0), proxytest.ConfigMaps.Bookmark(1000, true))
				c.Hang()
			})
		},
		"too old":                       refuse(false),
		"too old, says the first event": refuse(true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, source, tier := proxytest.NewTLSServer(t), proxytest.NewServer(t), newTier(t)
			for _, s := range []*proxytest.Server{up, source} {
				s.Collection(proxytest.ConfigMaps).Put("ns", "a", "1")
				s.Collection(proxytest.ConfigMaps).Put("ns", "b", "1")
			}
			prepare(up, source)
			f := tier.replica(t, up, scriptedSibling(t, tier, source, nil), scriptedSibling(t, tier, source, nil))
			if body := f.anyList(); !strings.Contains(body, `"name":"b"`) || strings.Contains(body, "lie") {
				t.Errorf("got %s", body)
			}
			f.awaitLog("Filled from a sibling", "objects=2")
			w := f.watch(anyState)
			w.AwaitVersion(up.Collection(proxytest.ConfigMaps).Put("ns", "c", "1"))
			if n := up.Count(proxytest.WatchList) + up.Count(proxytest.List); n != 0 {
				t.Errorf("%d lists upstream", n)
			}
			if lines := append(f.log.with("No sibling has filled"), f.log.with("went back in time")...); len(lines) != 0 {
				t.Errorf("the log says %q", lines)
			}
		})
	}
}

// A sibling may take long for a whole seed, as long as it goes on bringing objects. A large one
// counts as much as a hundred others.
func TestSeedSlow(t *testing.T) {
	t.Parallel()
	up, source, tier := proxytest.NewTLSServer(t), proxytest.NewServer(t), newTier(t)
	rv := up.Collection(proxytest.ConfigMaps).Put("ns", "a", "1")
	source.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
		for i := range 4 {
			c.Write(added(fmt.Sprint("large", i), rv, 20<<10))
			time.Sleep(2 * time.Second)
		}
		c.Write(proxytest.ConfigMaps.Bookmark(rv, true))
		c.Hang()
	})
	f := startFan(t, up, tier.options(scriptedSibling(t, tier, source, nil)), resident)
	f.awaitLog("Filled from a sibling", "objects=4")
}

// A sibling that lists again while it sends a seed sends the state from before. The new replica
// continues from there: it has what the sibling has, and no event is missing or comes twice.
func TestSeedRelists(t *testing.T) {
	t.Parallel()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	first := tier.replica(t, up)
	data := strings.Repeat("x", 100<<10)
	for i := range 100 {
		first.cms.Put("ns", fmt.Sprintf("c%03d", i), data)
	}
	first.anyList()
	relay := proxytest.NewRelay(t, addressOf(first))
	relay.Delay(5 * time.Millisecond)
	second := startFan(t, up, tier.options(relay.Address()), resident)
	second.until("the middle of the seed", func() bool { return relay.Delayed.Load() > 1<<20 })
	relay.Delay(200 * time.Millisecond) // the rest takes longer than a list, on a busy machine too
	first.cms.Put("ns", "c050", "new")
	first.cms.Delete("ns", "c099")
	first.cms.Put("ns", "d", "1")
	first.cms.Reflector().Send("garbage\n")
	first.awaitLog("relisted=true")
	if lines := second.log.with("Filled"); len(lines) != 0 {
		t.Fatalf("the sibling listed again too late: %q", lines)
	}
	relay.Delay(0)
	second.awaitLog("Filled from a sibling", "objects=100")
	last := first.cms.Put("ns", "e", "1")
	list := fmt.Sprintf("%s?resourceVersion=%d", cmsPath, last)
	_, want := first.get(list)
	if _, got := second.get(list); got != want {
		t.Errorf("the second replica lists %d bytes, the first %d", len(got), len(want))
	}
	if n := up.Count(proxytest.WatchList); n != 2 {
		t.Errorf("%d lists upstream, want two of the first replica", n)
	}
}

// The credential is never shown to a server whose certificate is not verified.
func TestSeedCertificate(t *testing.T) {
	up, tier, stranger := proxytest.NewTLSServer(t), newTier(t), newTier(t)
	var came atomic.Int32
	pair, err := tls.LoadX509KeyPair(stranger.certFile, stranger.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			if n, _ := conn.Read(make([]byte, 1)); n > 0 {
				came.Add(1)
			}
			conn.Close()
		}
	}()
	f := tier.replica(t, up, ln.Addr().String())
	f.anyList()
	f.awaitLog("No sibling has filled the lane", "reason=certificate")
	authority := startFan(t, up, func(o *proxy.Options) { // trusts that certificate, by another name
		o.Seed.SeedFrom, o.Seed.SeedCertificateAuthority = []string{ln.Addr().String()}, stranger.certFile
		o.Seed.SeedTLSServerName = "watchfan.example"
	})
	authority.anyList()
	authority.awaitLog("No sibling has filled the lane", "reason=certificate")
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	defer plain.Close()
	f = tier.replica(t, up, plain.Listener.Addr().String())
	f.anyList()
	f.awaitLog("No sibling has filled the lane", "reason=certificate")
	if n := came.Load(); n != 0 {
		t.Errorf("%d servers without the certificate were sent something", n)
	}
}

// Two replicas that start together do not wait for each other, and one that finds itself among its
// siblings refuses itself without a word in the metrics of loops.
func TestSeedTogether(t *testing.T) {
	t.Parallel()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	held := make(chan struct{})
	up.On(proxytest.WatchList, 2, func(c *proxytest.Call) {
		select {
		case <-held:
		case <-c.R.Context().Done():
		}
		c.Serve()
	})
	ports := []int{proxytest.FreePort(t), proxytest.FreePort(t)}
	var addrs []string
	for _, port := range ports {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	var replicas []*fan
	for _, port := range ports {
		replicas = append(replicas, startFan(t, up, tier.options(addrs...), resident, func(o *proxy.Options) { o.SecurePort = port }))
	}
	up.AwaitCount(proxytest.WatchList, 2) // while neither is filled
	close(held)
	for _, f := range replicas {
		f.anyList()
		if lines := f.log.with("reason=unfilled"); len(lines) != 1 {
			t.Errorf("%q", f.log.with("No sibling"))
		}
	}
}

// A sibling is answered from the cache or refused. Nothing passes through and no lane starts.
func TestSeedRefused(t *testing.T) {
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	f := tier.replica(t, up)
	const jsonForm = "application/json"
	ask := func(path, accept, token, identity string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.secure+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(request.SeedHeader, identity)
		req.Header.Set("Accept", accept)
		req.Header.Set("User-Agent", proxytest.ClientAgent)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		client := &http.Transport{DisableKeepAlives: true, TLSClientConfig: tier.trust(t)}
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	const seed = cmsPath + "?watch=true&sendInitialEvents=true&resourceVersion=0&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	want("no lane", ask(seed, jsonForm, clientToken, "1 a b"), 503)
	want("no resource", ask("/version", jsonForm, clientToken, "1 a b"), 503)
	want("anonymous", ask(seed, jsonForm, "", "1 a b"), 401)
	if n := up.Count(proxytest.WatchList) + up.Count(proxytest.List); n != 0 {
		t.Errorf("%d lists upstream", n)
	}
	f.anyList()
	for _, path := range []string{cmsPath, cmsPath + "/c", cmsPath + "?watch=true", strings.Replace(seed, "resourceVersion=0&", "", 1),
		strings.Replace(seed, "resourceVersion=0", "resourceVersion=101", 1), strings.Replace(seed, "sendInitialEvents=true", "sendInitialEvents=false", 1)} {
		want(path, ask(path, jsonForm, clientToken, "1 a b"), 503)
	}
	want("Tables", ask(seed, "application/json;as=Table;v=v1;g=meta.k8s.io", clientToken, "1 a b"), 503)
	want("another representation", ask(seed, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", clientToken, "1 a b"), 503)
	want("another identity", ask(seed, jsonForm, clientToken, "1 a b"), 412)
	up.SetAllow(func(token, _ string) bool { return token != "nobody" })
	want("no right", ask(seed, jsonForm, "nobody", "1 a b"), 403)
	if lists, watches := up.Count(proxytest.WatchList)+up.Count(proxytest.List), up.Count(proxytest.Watch); lists != 1 || watches != 0 {
		t.Errorf("%d lists and %d watches upstream, want the lane's list", lists, watches)
	}
	f.passed(0)
}

// trust returns a client's configuration that trusts the tier's certificate.
func (r tier) trust(t *testing.T) *tls.Config {
	t.Helper()
	content, err := os.ReadFile(r.certFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	return &tls.Config{RootCAs: roots}
}

// A name that does not exist, and an address where nobody answers, cost a moment and no list more.
func TestSeedNobody(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	up, tier := proxytest.NewTLSServer(t), newTier(t)
	f := tier.replica(t, up, "no-such-host.invalid", ln.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f.anyList()
	f.awaitLog("No sibling has filled the lane", "reason=no_sibling")
	if ctx.Err() != nil {
		t.Error("it took more than 20 s")
	}
	if n := up.Count(proxytest.WatchList); n != 1 {
		t.Errorf("%d lists upstream, want 1", n)
	}
}
