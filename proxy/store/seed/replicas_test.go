package seed_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// tier is replicas in front of one kube-apiserver, which have a serving certificate in common.
type tier struct {
	t         *testing.T
	up        *proxytest.Server
	cms       *proxytest.Collection // up's ConfigMaps
	cert, key string                // files
	serving   tls.Certificate
}

func newTier(t *testing.T) *tier {
	t.Helper()
	certFile, keyFile, err := downstream.SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	up := proxytest.NewBubbleServer(t)
	return &tier{t, up, up.Collection(proxytest.ConfigMaps), certFile, keyFile, pair}
}

// replica starts a replica whose siblings are at the given addresses. It has an address itself if serve
// gives it one.
func (x *tier) replica(siblings []string, change ...func(*proxy.Options)) *bubble.Proxy {
	x.t.Helper()
	ours := func(o *proxy.Options) {
		o.Downstream.TLSCertFile, o.Downstream.TLSPrivateKeyFile, o.Seed.SeedFrom = x.cert, x.key, siblings
	}
	return bubble.Start(x.t, x.up, append([]func(*proxy.Options){ours}, change...)...)
}

// serve serves at an address, with the tier's certificate.
func (x *tier) serve(address string, h http.HandlerFunc) {
	s := &httptest.Server{Listener: x.up.Pipes.At(address), Config: &http.Server{Handler: h, ErrorLog: log.New(x.t.Output(), "", 0)},
		TLS: &tls.Config{Certificates: []tls.Certificate{x.serving}}}
	s.StartTLS()
	x.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
}

// answer serves requests of siblings as the secure port of p does.
func answer(p *bubble.Proxy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { p.Begin(bubble.RequestOf(r)).CopyTo(r.Context(), w) }
}

// Addresses of siblings.
const (
	first  = "127.0.0.1:8443"
	second = "127.0.0.1:8444"
	nobody = "127.0.0.1:8445"
)

// scripted serves what source has at an address, as a sibling does. before may answer in its place; it
// reports whether it has.
func (x *tier) scripted(address string, source *proxytest.Server, before func(http.ResponseWriter, *http.Request) bool) {
	x.serve(address, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+bubble.OwnToken {
			x.t.Errorf("the sibling was shown %q", r.Header.Get("Authorization"))
		}
		w.Header().Set(request.SeedHeader, r.Header.Get(request.SeedHeader))
		if before == nil || !before(w, r) {
			source.Config.Handler.ServeHTTP(w, r)
		}
	})
}

// resident makes a replica fill the lane of ConfigMaps when it starts.
func resident(o *proxy.Options) { o.Cached.ResidentResources = []string{"configmaps"} }

// anyList returns any state of the ConfigMaps.
func anyList(p *bubble.Proxy) string {
	p.T.Helper()
	resp, body := p.Get(bubble.CMs + "?resourceVersion=0")
	if resp.StatusCode != http.StatusOK {
		p.T.Fatalf("list: %s %s", resp.Status, body)
	}
	return body
}

// filledOf says from where a replica's lane was filled.
func filledOf(p *bubble.Proxy) reflector.Filled {
	p.T.Helper()
	var page struct {
		Lanes []struct{ Filled *reflector.Filled }
	}
	p.AdminJSON("/debug/lanes", &page)
	if len(page.Lanes) != 1 || page.Lanes[0].Filled == nil {
		p.T.Fatalf("got %+v, want one filled lane", page)
	}
	return *page.Lanes[0].Filled
}

// wantLists fails the test unless kube-apiserver got n lists.
func (x *tier) wantLists(n int) {
	x.t.Helper()
	if got := x.up.Count(proxytest.WatchList) + x.up.Count(proxytest.List); got != n {
		x.t.Errorf("%d lists upstream, want %d", got, n)
	}
}

// The second replica is filled from the first: kube-apiserver lists once, and has one watch of each
// replica. Both serve the same bytes, and no event is missing.
func TestFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		one := x.replica(nil)
		x.serve(first, answer(one))
		for i := range 250 {
			x.cms.Put("ns", fmt.Sprintf("c%03d", i), "1", "app", "x")
		}
		want := anyList(one)
		x.up.Pipes.At(nobody).Close()
		two := x.replica([]string{nobody, first})
		x.serve(second, answer(two))
		if got := anyList(two); got != want {
			t.Errorf("the second replica lists %d bytes, the first %d", len(got), len(want))
		}
		two.AwaitLog("Filled without a list", "objects=250")
		if got := filledOf(two); got.Source != "sibling" || got.Address != first || got.Objects != 250 || got.NoSibling != "" {
			t.Errorf("the second replica's lane: filled %+v", got)
		}
		if got := filledOf(one); got.Source != "upstream" || got.Address != "" || got.NoSibling != "" {
			t.Errorf("the first replica's lane: filled %+v", got)
		}
		w := two.Watch(bubble.AnyState)
		w.AwaitVersion(x.cms.Put("ns", "c000", "2"))
		w.AwaitVersion(x.cms.Delete("ns", "c001"))
		x.wantLists(1) // of the first replica
		x.up.WantCount(proxytest.Watch, 1)
		three := x.replica([]string{second})
		anyList(three)
		three.AwaitLog("Filled without a list", "objects=249")
		three.Passed(0)
		alone := x.replica([]string{nobody})
		anyList(alone)
		if got := filledOf(alone); got.Source != "upstream" || got.NoSibling != "no_sibling" {
			t.Errorf("a replica whose sibling does not answer: filled %+v", got)
		}
		x.wantLists(2)
	})
}

// Rules about all clients are not about siblings, which need whole objects, also when what they say has changed.
func TestRulesOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		namespaces := x.up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		one := x.replica(nil, resident, func(o *proxy.Options) {
			o.Observe.Clients = observe.Rules{{ViewOf: observe.OfNamespace}, {View: view.Lean}}
		})
		x.serve(first, answer(one))
		x.cms.Put("ns", "a", "1")
		one.AwaitLog("Listed", "configmaps")
		x.replica([]string{first}, resident).AwaitLog("Filled without a list", "objects=1")
		claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:ns:app"}`))
		one.Send(bubble.Request{Target: bubble.CMs + "?resourceVersion=0", Token: "h." + claims + ".s"}).Read() // namespaces are followed for it
		namespaces.Put("", "ns", "", view.Label, view.Lean)
		one.AwaitLog("Applied the views that namespaces name")
		x.replica([]string{first}, resident).AwaitLog("Filled without a list", "objects=1")
	})
}

// A seed does not count as newer than a read that waits: a consistent read behind it is proven at
// kube-apiserver.
func TestSeedIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, source := newTier(t), proxytest.NewBubbleServer(t)
		source.Collection(proxytest.ConfigMaps).Put("ns", "old", "1")
		x.cms.Put("ns", "old", "1")
		x.up.On(proxytest.Watch, 1, func(c *proxytest.Call) { // a watch that brings nothing
			c.Write("")
			c.Hang()
		})
		x.cms.Put("ns", "new", "1")
		x.scripted(first, source, nil)
		p := x.replica([]string{first}, bubble.NoneAlone)
		if body := anyList(p); strings.Contains(body, `"name":"new"`) {
			t.Fatalf("the sibling had it: %s", body)
		}
		p.AwaitLog("Filled without a list")
		if _, body := p.Get(bubble.CMs); !strings.Contains(body, `"name":"new"`) {
			t.Errorf("a consistent list is as old as the seed: %s", body)
		}
	})
}

// A replica that knows that its cache is wrong fills no other, until it has listed again.
func TestKnownWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		one := x.replica(nil, func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = time.Second })
		x.serve(first, answer(one))
		x.cms.Put("ns", "a", "1")
		one.Watch(bubble.AnyState).Await(2)
		x.up.On(proxytest.WatchList, 1, (*proxytest.Call).Hang) // the list that would mend it
		x.cms.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", x.up.Bump(1)))
		one.AwaitLog("The cache is not what upstream is")
		x.up.AwaitCount(proxytest.WatchList, 2)
		two := x.replica([]string{first})
		if got := anyList(two); strings.Contains(got, "ghost") {
			t.Errorf("the second replica lists %s", got)
		}
		if got := filledOf(two); got.NoSibling != "unfilled" {
			t.Errorf("the second replica's lane: filled %+v", got)
		}
	})
}

// added is an ADDED event of an object with n bytes of data.
func added(name string, rv uint64, n int) string {
	return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns",`+
		`"uid":"u","resourceVersion":"%d"},"data":{"x":%q}}}`, name, rv, strings.Repeat("x", n)) + "\n"
}

// script prepares a sibling that answers its first WatchList with do.
func script(do func(*proxytest.Call)) func(up, source *proxytest.Server) {
	return func(_, source *proxytest.Server) { source.On(proxytest.WatchList, 1, do) }
}

// lie sends an object that is not there.
func lie(then func(*proxytest.Call)) func(*proxytest.Call) {
	return func(c *proxytest.Call) {
		c.Write(added("lie", 101, 0))
		then(c)
	}
}

// seeded starts a replica whose siblings, at these addresses, have the same two objects as kube-apiserver, but for
// what prepare and before do. It lists what is there.
func seeded(
	t *testing.T, siblings []string, prepare func(up, source *proxytest.Server), before func(http.ResponseWriter, *http.Request) bool,
) (*tier, *bubble.Proxy) {
	t.Helper()
	x, source := newTier(t), proxytest.NewBubbleServer(t)
	for _, cms := range []*proxytest.Collection{x.cms, source.Collection(proxytest.ConfigMaps)} {
		cms.Put("ns", "a", "1")
		cms.Put("ns", "b", "1")
	}
	if prepare != nil {
		prepare(x.up, source)
	}
	for _, address := range siblings {
		x.scripted(address, source, before)
	}
	p := x.replica(siblings)
	if body := anyList(p); !strings.Contains(body, `"name":"b"`) || strings.Contains(body, "lie") {
		t.Errorf("got %s", body)
	}
	return x, p
}

// Whatever is wrong with a sibling, the lane is listed at kube-apiserver, once. Nobody notices but
// the log and the metrics.
func TestFaults(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	header := func(change func(string) string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set(request.SeedHeader, change(r.Header.Get(request.SeedHeader)))
			return false
		}
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
		"killed":         {"broken", nil, script(lie((*proxytest.Call).Abort))},
		"ended":          {"broken", nil, script(lie(func(*proxytest.Call) {}))},
		"silent":         {"slow", nil, script(lie((*proxytest.Call).Hang))},
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
		bubble.Run(t, name, func(t *testing.T) {
			x, p := seeded(t, []string{first}, tc.prepare, tc.before)
			x.wantLists(1)
			if lines := p.Log.With("No sibling has filled the lane", "reason="+tc.reason+" ", "todo="); len(lines) != 1 {
				t.Errorf("the reason is not logged once as %s: %q", tc.reason, p.Log.With("No sibling has filled"))
			}
			p.Watch(bubble.AnyState).AwaitVersion(x.cms.Put("ns", "c", "1"))
			p.Passed(0)
		})
	}
}

// If one sibling fails, whenever that shows, the next one fills the lane. Nothing of the first is
// left.
func TestNext(t *testing.T) {
	refuse := func(event bool) func(up, source *proxytest.Server) {
		return func(up, source *proxytest.Server) {
			script(lie(func(c *proxytest.Call) {
				c.Write(proxytest.ConfigMaps.Bookmark(101, true))
				c.Hang()
			}))(up, source)
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
		"killed": script(lie((*proxytest.Call).Abort)),
		"silent": script(lie((*proxytest.Call).Hang)),
		"in the future": script(lie(func(c *proxytest.Call) {
			c.Write(proxytest.ConfigMaps.Bookmark(1000, true))
			c.Hang()
		})),
		"too old":                       refuse(false),
		"too old, says the first event": refuse(true),
	} {
		bubble.Run(t, name, func(t *testing.T) {
			x, p := seeded(t, []string{first, second}, prepare, nil)
			p.AwaitLog("Filled without a list", "objects=2")
			p.Watch(bubble.AnyState).AwaitVersion(x.cms.Put("ns", "c", "1"))
			x.wantLists(0)
			if lines := append(p.Log.With("No sibling has filled"), p.Log.With("went back in time")...); len(lines) != 0 {
				t.Errorf("the log says %q", lines)
			}
		})
	}
}

// A sibling may take long for a whole seed, as long as it goes on bringing objects. A large one
// counts as much as a hundred others.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, source := newTier(t), proxytest.NewBubbleServer(t)
		rv := x.cms.Put("ns", "a", "1")
		source.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
			for i := range 4 {
				c.Write(added(fmt.Sprint("large", i), rv, 20<<10))
				time.Sleep(2 * time.Second)
			}
			c.Write(proxytest.ConfigMaps.Bookmark(rv, true))
			c.Hang()
		})
		x.scripted(first, source, nil)
		x.replica([]string{first}, resident).AwaitLog("Filled without a list", "objects=4")
	})
}

// A sibling that lists again while it sends a seed sends the state from before. The new replica
// continues from there: it has what the sibling has, and no event is missing or comes twice.
func TestRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		one := x.replica(nil)
		data := strings.Repeat("x", 20<<10)
		for i := range 100 {
			x.cms.Put("ns", fmt.Sprintf("c%03d", i), data)
		}
		anyList(one)
		sent := make(chan *bubble.Client, 1)
		x.serve(first, func(w http.ResponseWriter, r *http.Request) {
			c := one.Begin(bubble.RequestOf(r))
			c.Stall()
			sent <- c
			c.CopyTo(r.Context(), w)
		})
		two := x.replica([]string{first}, resident)
		seed := <-sent
		synctest.Wait()
		x.cms.Put("ns", "c050", "new")
		x.cms.Delete("ns", "c099")
		x.cms.Put("ns", "d", "1")
		x.cms.Reflector().Send("garbage\n")
		one.AwaitLog("relisted=true")
		if lines := two.Log.With("Filled"); len(lines) != 0 {
			t.Fatalf("the sibling listed again too late: %q", lines)
		}
		seed.Unstall()
		two.AwaitLog("Filled without a list", "objects=100")
		list := fmt.Sprintf("%s?resourceVersion=%d", bubble.CMs, x.cms.Put("ns", "e", "1"))
		_, want := one.Get(list)
		if _, got := two.Get(list); got != want {
			t.Errorf("the second replica lists %d bytes, the first %d", len(got), len(want))
		}
		x.wantLists(2)
	})
}

// The credential is never shown to a server whose certificate is not verified.
func TestCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, stranger := newTier(t), newTier(t)
		var came atomic.Int32
		count := func(http.ResponseWriter, *http.Request) { came.Add(1) }
		x.serving = stranger.serving
		x.serve(first, count)
		plain := &httptest.Server{Listener: x.up.Pipes.At(second), Config: &http.Server{Handler: http.HandlerFunc(count)}}
		plain.Start()
		defer plain.Close()
		for _, change := range []func(*proxy.Options){
			func(o *proxy.Options) { o.Seed.SeedFrom = []string{first} },
			func(o *proxy.Options) { o.Seed.SeedFrom = []string{second} },
			func(o *proxy.Options) { // trusts that certificate, by another name
				o.Seed.SeedFrom, o.Seed.SeedCertificateAuthority, o.Seed.SeedTLSServerName = []string{first}, stranger.cert, "watchfan.example"
			},
		} {
			p := x.replica(nil, change)
			anyList(p)
			p.AwaitLog("No sibling has filled the lane", "reason=certificate")
		}
		if n := came.Load(); n != 0 {
			t.Errorf("%d requests came", n)
		}
	})
}

// Two replicas that start together do not wait for each other, and one that finds itself among its
// siblings refuses itself without a word in the metrics of loops.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		held, started := make(chan struct{}), make(chan struct{})
		x.up.On(proxytest.WatchList, 2, func(c *proxytest.Call) {
			select {
			case <-held:
			case <-c.R.Context().Done():
			}
			c.Serve()
		})
		var replicas []*bubble.Proxy
		addresses := []string{first, second}
		for i, address := range addresses {
			x.serve(address, func(w http.ResponseWriter, r *http.Request) {
				<-started
				answer(replicas[i])(w, r)
			})
		}
		for range addresses {
			replicas = append(replicas, x.replica(addresses, resident))
		}
		close(started)
		x.up.AwaitCount(proxytest.WatchList, 2) // while neither is filled
		close(held)
		for _, p := range replicas {
			anyList(p)
			if lines := p.Log.With("reason=unfilled"); len(lines) != 1 {
				t.Errorf("%q", p.Log.With("No sibling"))
			}
		}
	})
}

// A sibling is answered from the cache or refused. Nothing passes through and no lane starts.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		p := x.replica(nil)
		const jsonForm = "application/json"
		want := func(code int, target, accept, token string) {
			t.Helper()
			resp, _ := p.Send(bubble.Request{Target: target, Header: []string{request.SeedHeader, "1 a b", "Accept", accept},
				Token: token, TLS: &tls.ConnectionState{HandshakeComplete: true}}).Read()
			if resp.StatusCode != code {
				t.Errorf("%s as %s of %q: got %d, want %d", target, accept, token, resp.StatusCode, code)
			}
		}
		const initial = "sendInitialEvents=true&resourceVersion=0&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		const seed = bubble.CMs + "?watch=true&" + initial
		want(503, seed, jsonForm, bubble.ClientToken) // no lane
		want(503, "/version", jsonForm, bubble.ClientToken)
		want(401, seed, jsonForm, "")
		x.wantLists(0)
		anyList(p)
		for _, target := range []string{bubble.CMs, bubble.CMs + "/c", bubble.CMs + "?watch=true", strings.Replace(seed, "resourceVersion=0&", "", 1),
			strings.Replace(seed, "resourceVersion=0", "resourceVersion=101", 1), strings.Replace(seed, "sendInitialEvents=true", "sendInitialEvents=false", 1)} {
			want(503, target, jsonForm, bubble.ClientToken)
		}
		want(503, seed, proxytest.TableAccept, bubble.ClientToken)
		want(503, seed, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", bubble.ClientToken)
		want(412, seed, jsonForm, bubble.ClientToken) // another identity
		x.up.SetAllow(func(token, _ string) bool { return token != "nobody" })
		want(403, seed, jsonForm, "nobody")
		x.wantLists(1) // the lane's
		x.up.WantCount(proxytest.Watch, 0)
		p.Passed(0)
	})
}

// A seed that kube-apiserver refuses leaves nothing behind: what was told of namespaces still counts, and a client
// of a view that selects them has to list if it comes from before they changed.
func TestRefusedSeedOfView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, source := newTier(t), proxytest.NewBubbleServer(t)
		source.Collection(proxytest.ConfigMaps).Put("ns", "a", "1")
		x.scripted(first, source, func(w http.ResponseWriter, r *http.Request) (other bool) {
			if other = r.URL.Path != bubble.CMs; other {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return other
		})
		namespaces := x.up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		namespaces.Put("", "ns", "", "team", "b")
		x.cms.Put("ns", "a", "1") // 102
		namespaces.Put("", "ns", "", "team", "a")
		x.cms.Put("ns", "b", "1")
		x.up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Write(proxytest.ErrorEvent(410, "Expired", "too old")) })
		p := x.replica([]string{first}, func(o *proxy.Options) {
			o.View.Views = []view.Config{{Name: "team", Resources: []view.Part{{Resource: "configmaps",
				Namespaces: view.Namespaces{Labels: "team=a"}}}}}
		})
		p.Watch("/views/team"+bubble.AnyState).Want("ADDED ns/a 102", "ADDED ns/b 104", "END 104")
		p.AwaitLog("No sibling has filled the lane", "reason=too_old")
		if e := p.Watch("/views/team"+bubble.Since, 102).Await(1); e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410: it has not seen ns/a", e)
		}
	})
}
