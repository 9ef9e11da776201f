package cached_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// undone is a quiet view of the labels of ConfigMaps that are not done.
func undone(namespaces view.Selector) view.Config {
	return view.Config{Name: "undone", Quiet: true, Resources: []view.Part{{Resource: "configmaps", Keep: []view.Kept{"metadata.labels"},
		Where: "data.v notin (done)", Namespaces: view.Namespaces{Labels: namespaces}}}}
}

func withViews(views ...view.Config) func(*proxy.Options) {
	return func(o *proxy.Options) { o.View.Views = views }
}

const undonePath = "/views/undone"

// A view that selects objects has those only: in watches, lists, pages and gets, from the cache and from
// kube-apiserver. Its client is told of what it sees, and of bookmarks. What can't be selected is refused.
func TestViews(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "done")
		p.CMs.Put("ns", "c", "1")
		w := p.Watch(undonePath + bubble.AnyState)
		w.Want("ADDED ns/a 101", "ADDED ns/c 103", "END 103")
		p.CMs.Put("ns", "a", "2") // nobody sees that
		p.CMs.Put("ns", "a", "2", "x", "1")
		p.CMs.Put("ns", "c", "done")
		p.CMs.Put("ns", "b", "3")
		p.CMs.Put("ns", "b", "4")
		p.CMs.Delete("ns", "a")
		rest := []string{"MODIFIED ns/a 105", "DELETED ns/c 106", "ADDED ns/b 107", "DELETED ns/a 109"}
		w.Want(append([]string{"ADDED ns/a 101", "ADDED ns/c 103", "END 103"}, rest...)...)
		for _, e := range w.Events() {
			if strings.Contains(e.Raw, `"data"`) {
				t.Errorf("got %s", e.Raw)
			}
		}
		p.Watch(undonePath+bubble.Since, 103).Want(rest...)
		quiet := p.Watch(undonePath+bubble.Since, 109)
		p.CMs.Put("ns", "b", "5")
		time.Sleep(2 * time.Minute)
		if events := quiet.Events(); len(events) == 0 || events[0].Type != "BOOKMARK" || events[0].RV != 110 {
			t.Errorf("got %v", quiet.Strings())
		}
		if _, text := p.Admin("/metrics"); !strings.Contains(text, `watchfan_view_quiet_events_total{view="undone"} 5`+"\n") {
			t.Error("the metrics don't say how many events were quiet")
		}
		p.CMs.Put("ns", "d", "1")
		for _, path := range []string{"?resourceVersion=0", "", "?resourceVersion=0&pretty=1", "?limit=1"} {
			resp, body := p.Get(undonePath + bubble.CMs + path)
			if resp.StatusCode != http.StatusOK || strings.Contains(body, `"done"`) || strings.Contains(body, "ns/c") || strings.Contains(body, "remaining") ||
				!strings.Contains(body, `"name":"b","namespace":"ns"`) {
				t.Errorf("%s: %s %s", path, resp.Status, body)
			}
		}
		const tables = "application/json;as=Table;v=v1;g=meta.k8s.io"
		spaced := strings.Replace(tables, "as=", "as = ", 1)
		for accept, code := range map[string]int{tables + ",application/json": http.StatusOK, tables: http.StatusNotAcceptable,
			spaced + ",application/json": http.StatusOK, spaced: http.StatusNotAcceptable} {
			if resp, body := p.Get(undonePath+bubble.CMs, "Accept", accept); resp.StatusCode != code || strings.Contains(body, "Table;") {
				t.Errorf("%s: %s %s", accept, resp.Status, body)
			}
		}
		p.Passed(0)
		for name, code := range map[string]int{"b": http.StatusOK, "c": http.StatusNotFound, "none": http.StatusNotFound} {
			for _, query := range []string{"?resourceVersion=0", ""} {
				resp, body := p.Get(undonePath + "/api/v1/namespaces/ns/configmaps/" + name + query)
				if resp.StatusCode != code || strings.Contains(body, `"data"`) || code != http.StatusOK && !strings.Contains(body, "NotFound") {
					t.Errorf("%s%s: %s %s", name, query, resp.Status, body)
				}
			}
		}
	}, withViews(undone("")), bubble.NoneAlone)
}

// What no cache answers is selected while it is small, and otherwise refused. A client with the rights of
// its plain path is not told more in a view, and the path tells it no less.
func TestViewsPassedThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		get := func(path string) (int, string) {
			resp, body := p.Get(undonePath + path)
			return resp.StatusCode, body
		}
		if code, body := get(bubble.CMs); code != http.StatusOK || !strings.Contains(body, `"items":[]`) {
			t.Errorf("without objects: %d %s", code, body)
		}
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "c", "done")
		if code, body := get(bubble.CMs); code != http.StatusOK || !strings.Contains(body, `"a"`) || strings.Contains(body, `"c"`) || strings.Contains(body, `"data"`) {
			t.Errorf("%d %s", code, body)
		}
		if code, body := get(bubble.AnyState); code != http.StatusServiceUnavailable || strings.Contains(body, "ADDED") {
			t.Errorf("a watch: %d %s", code, body)
		}
		p.CMs.Put("ns", "large", strings.Repeat("secret", 100_000))
		if code, body := get(bubble.CMs); code != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
			t.Errorf("a large list: %d, %d bytes", code, len(body))
		}
		for i := range 1000 { // names that are no views
			if resp, _ := p.Get(fmt.Sprintf("/views/v%d%s", i, bubble.CMs)); resp.StatusCode != http.StatusNotFound {
				t.Errorf("v%d: %s", i, resp.Status)
			}
		}
		if _, text := p.Admin("/metrics"); strings.Contains(text, `view="v`) {
			t.Error("names of clients are in the metrics")
		}
	}, withViews(undone("")), func(o *proxy.Options) { o.Cached.Exclude = []string{"configmaps"} })
}

// kube-apiserver ignores that a client asks for h2c, as Java's does, and the parameter watch of a get. Neither shows a
// client of a view more.
func TestViewsPassedThroughPlainly(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "c", "done")
		h2c := []string{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAAQAAP__"}
		if resp, body := p.Get(undonePath+bubble.CMs, h2c...); !strings.Contains(body, `"a"`) || strings.Contains(body, `"c"`) || strings.Contains(body, `"data"`) {
			t.Errorf("a list: %s %s", resp.Status, body)
		}
		p.Up.OnClients(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"ns","resourceVersion":"102"},"data":{"v":"done"}}`)
		})
		const one = undonePath + "/api/v1/namespaces/ns/configmaps/c"
		for path, header := range map[string][]string{one: h2c, one + "?watch=1": nil} {
			if resp, body := p.Get(path, header...); resp.StatusCode != http.StatusNotFound || strings.Contains(body, `"data"`) {
				t.Errorf("%s with %q: %s %s", path, header, resp.Status, body)
			}
		}
	}, withViews(undone("")), func(o *proxy.Options) { o.Cached.Exclude = []string{"configmaps"} })
}

// No proof says that a cache of events is current, so kube-apiserver answers a read that asks for that. Small lists are
// selected as any that no cache answers, and an informer whose watch is refused lists any state.
func TestViewsOfEvents(t *testing.T) {
	events := proxytest.Resource{Version: "v1", Name: "events", Kind: "Event"}
	v := view.Config{Name: "undone", Resources: []view.Part{{Resource: "events", Where: "data.v notin (done)"}}}
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		c := up.Add(events)
		c.Put("ns", "a", "1")
		c.Put("ns", "b", "done")
		p := bubble.Start(t, up, withViews(v))
		for _, query := range []string{"?resourceVersion=0", "", "?limit=500"} {
			resp, body := p.Get(undonePath + events.Path() + query)
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"a"`) || strings.Contains(body, `"name":"b"`) {
				t.Errorf("%s: %s %s", query, resp.Status, body)
			}
		}
		resp, body := p.Get(undonePath + events.Path() + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		if resp.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "ADDED") {
			t.Errorf("a watch: %s %s", resp.Status, body)
		}
		w := p.Watch(undonePath+"%s?watch=1&resourceVersion=102", events.Path())
		c.Put("ns", "c", "done")
		c.Put("ns", "c", "1")
		w.Want("ADDED ns/c 104")
		p.Passed(2)
	})
}

// A resource that there is not has no form in a view, which would be remembered: kube-apiserver says that there is
// none.
func TestViewsOfNoResource(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		for _, path := range []string{"/apis/none.example/v1/configmaps", "/apis/ex.io/v1/configmaps"} {
			for _, query := range []string{"", "?resourceVersion=0", "?watch=1"} {
				resp, body := p.Get(undonePath+path+query, "Accept", "application/vnd.kubernetes.protobuf")
				if resp.StatusCode != http.StatusNotFound {
					t.Errorf("%s%s: %s %s", path, query, resp.Status, body)
				}
			}
		}
	}, withViews(undone("")))
}

// A view may select namespaces by their labels. Watches end when objects enter or leave it in that way,
// and nobody resumes from before.
func TestViewsNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		p := bubble.Start(t, up, withViews(undone("team=a")), bubble.NoneAlone)
		namespaces.Put("", "ns", "", "team", "a") // 101
		namespaces.Put("", "other", "", "team", "b")
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("other", "b", "1")
		w := p.Watch(undonePath + bubble.Fresh)
		w.Want("ADDED ns/a 103", "END 104")
		p.CMs.Put("other", "c", "1")
		p.CMs.Put("ns", "c", "1")
		w.Want("ADDED ns/a 103", "END 104", "ADDED ns/c 106")
		namespaces.Put("", "new", "", "team", "a") // 107: it has no objects
		synctest.Wait()
		p.CMs.Put("new", "d", "1")
		w.Want("ADDED ns/a 103", "END 104", "ADDED ns/c 106", "ADDED new/d 108")
		namespaces.Put("", "other", "", "team", "a") // 109
		if w.WantEnd(); !strings.Contains(w.Events()[len(w.Events())-1].Raw, "too old resource version") {
			t.Errorf("got %v", w.Strings())
		}
		if e := p.Watch(undonePath+bubble.Since, 108).Await(1); e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410", e)
		}
		namespaces.Put("", "ns", "", "team", "b") // a list behind it knows, however soon it comes
		resp, body := p.Get(undonePath + bubble.CMs)
		if resp.StatusCode != http.StatusOK || strings.Contains(body, `"namespace":"ns"`) || strings.Count(body, `"namespace":"other"`) != 2 {
			t.Errorf("%s %s", resp.Status, body)
		}
		resp, body = p.Get(undonePath + "/api/v1/namespaces/ns/configmaps/a")
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s %s", resp.Status, body)
		}
		p.Watch(undonePath+bubble.Fresh).Until("the state", func(events []proxytest.Event) bool { return len(events) >= 4 })
		p.Passed(0)
	})
}

// While namespaces can't be followed, nothing is read in a view that selects them by their labels, and the client is
// told so.
func TestViewsNamespacesUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Up.OnClients(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"ns"}}`)
		})
		for path, want := range map[string]int{
			"/api/v1/namespaces/ns/configmaps/a":                   http.StatusServiceUnavailable,
			"/api/v1/namespaces/ns/configmaps/a?resourceVersion=0": http.StatusServiceUnavailable,
			bubble.CMs:   http.StatusTooManyRequests,
			bubble.Fresh: http.StatusTooManyRequests,
		} {
			if resp, body := p.Get(undonePath + path); resp.StatusCode != want || !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("%s: %s %s", path, resp.Status, body)
			}
		}
	}, withViews(undone("team=a")), bubble.NoneAlone)
}

// After etcd was restored, a client of a view that selects namespaces lists and watches as any other. What was told
// before of namespaces is of resourceVersions that are yet to come.
func TestViewsNamespacesRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		p := bubble.Start(t, up, withViews(undone("team=a")), bubble.NoneAlone)
		namespaces.Put("", "ns", "", "team", "b")
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(undonePath + bubble.Fresh)
		w.Want("END 102")
		namespaces.Put("", "ns", "", "team", "a") // 103
		w.WantEnd()
		p.CMs.Restore(60, "a")
		namespaces.Restore(60)
		namespaces.Put("", "ns", "", "team", "a") // 61
		time.Sleep(time.Minute)
		resp, body := p.Get(undonePath + bubble.CMs)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"resourceVersion":"61"`) {
			t.Fatalf("%s %s", resp.Status, body)
		}
		w = p.Watch(undonePath+bubble.Since, 61)
		p.CMs.Put("ns", "b", "1")
		w.Want("ADDED ns/b 62")
	})
}

// A lane may begin when etcd was restored, and before the lane of namespaces has noticed that. Its clients list and
// watch as any others as soon as it has.
func TestViewsNamespacesRestoredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		services := up.Add(proxytest.Resource{Version: "v1", Name: "services", Kind: "Service"})
		by := view.Namespaces{Labels: "team=a"}
		of := view.Config{Name: "team", Resources: []view.Part{{Resource: "configmaps", Namespaces: by}, {Resource: "services", Namespaces: by}}}
		p := bubble.Start(t, up, withViews(of), bubble.NoneAlone)
		namespaces.Put("", "ns", "", "team", "a") // 101
		services.Put("ns", "s", "1")
		p.Watch("/views/team/api/v1/services?watch=1&resourceVersion=0").Want("ADDED ns/s 102")
		p.CMs.Restore(60, "a")
		p.Watch("/views/team"+bubble.AnyState).Want("ADDED ns/a 60", "END 60")
		namespaces.Restore(60)
		namespaces.Put("", "ns", "", "team", "a") // 61
		time.Sleep(time.Minute)
		p.CMs.Put("ns", "b", "1") // 62
		w := p.Watch("/views/team"+bubble.Since, 62)
		p.CMs.Put("ns", "c", "1")
		w.Want("ADDED ns/c 63")
	})
}

// A rule has a client read in a view at the plain path. What it may have read without all fields it may
// not replace; all else it may do.
func TestViewsByRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "done")
		p.Watch(bubble.AnyState).Want("ADDED ns/a 101", "END 102")
		for method, code := range map[string]int{http.MethodPut: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusOK} {
			resp, body := p.Send(bubble.Request{Method: method, Target: "/api/v1/namespaces/ns/configmaps/a", Body: "{}"}).Read()
			if (resp.StatusCode == http.StatusMethodNotAllowed) != (code == http.StatusMethodNotAllowed) {
				t.Errorf("%s: %s %s", method, resp.Status, body)
			}
		}
		if resp, body := p.Get("/apis/ex.io/v1/foos?resourceVersion=0"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s", resp.Status, body)
		}
	}, withViews(undone("")), func(o *proxy.Options) {
		o.Observe.Clients = observe.Rules{{UserAgents: []observe.UserAgent{proxytest.ClientAgent}, View: "undone"}}
	})
}

// Rules read as much of a user agent before a watch begins as while it is open. So a watch in the view of a rule that
// names what comes later in a long one does not end at once, each time.
func TestViewsByRuleOfLongAgent(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		for _, agent := range []string{"some/1 " + strings.Repeat("x", 300), strings.Repeat("x", 300) + " some/1"} {
			p.Send(bubble.Request{Target: bubble.AnyState, Header: []string{"User-Agent", agent}}).Watch().Want("ADDED ns/a 101", "END 101")
		}
	}, withViews(undone("")), func(o *proxy.Options) {
		o.Observe.Clients = observe.Rules{{UserAgents: []observe.UserAgent{"some/1"}, View: "undone"}}
	})
}

// as returns a request of a service account of a namespace.
func as(namespace, target string, args ...any) bubble.Request {
	claims := fmt.Sprintf(`{"sub":"system:serviceaccount:%s:app"}`, namespace)
	return bubble.Request{Token: "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s", Target: fmt.Sprintf(target, args...)}
}

// A namespace names the view of its service accounts. When its label changes, their watches end, and who was
// away has to list. Others read as before, and so does who has a rule of its own.
func TestViewsByNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
		namespaces.Put("", "shop", "")
		namespaces.Put("", "own", "", view.Label, "undone")
		p := bubble.Start(t, up, withViews(undone("")), bubble.NoneAlone, func(o *proxy.Options) {
			o.Observe.Clients = observe.Rules{{Namespaces: []observe.Namespace{"own"}, Mode: observe.Serve}, {ViewOf: observe.OfNamespace}}
		})
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "done")
		whole, part := []string{"ADDED ns/a 103", "ADDED ns/b 104", "END 104"}, []string{"ADDED ns/a 103", "END 104"}
		began := func(namespace string, want []string) *proxytest.Watcher {
			t.Helper()
			w := p.Send(as(namespace, bubble.AnyState)).Watch()
			w.Want(want...)
			return w
		}
		own, other, user := began("own", whole), began("other", whole), p.Watch(bubble.AnyState)
		user.Want(whole...)
		label := func(w *proxytest.Watcher, name string, want []string) *proxytest.Watcher {
			t.Helper()
			namespaces.Put("", "shop", "", view.Label, name)
			if w.WantEnd(); !strings.Contains(w.Events()[len(w.Events())-1].Raw, "too old resource version") {
				t.Errorf("got %v", w.Strings())
			}
			if e := p.Send(as("shop", bubble.Since, 104)).Watch().Await(1); e[0].Type != "ERROR" {
				t.Errorf("got %v, want 410", e)
			}
			return began("shop", want)
		}
		shop := label(began("shop", whole), "undone", part)
		if resp, body := p.Send(as("shop", bubble.CMs+"?resourceVersion=0")).Read(); resp.StatusCode != http.StatusOK || strings.Contains(body, `"done"`) {
			t.Errorf("%s %s", resp.Status, body)
		}
		again := p.Send(as("shop", bubble.Since, 104)).Watch() // it has listed
		synctest.Wait()
		if !again.Open() || len(again.Events()) > 0 {
			t.Errorf("got %v", again.Strings())
		}
		shop = label(shop, "nothing", whole)
		p.AwaitLog("names a view that there is not", "namespace=shop", "view=nothing")
		namespaces.Put("", "shop", "") // nothing changes
		p.CMs.Put("ns", "c", "1")
		for _, w := range []*proxytest.Watcher{own, other, user, shop} {
			w.Want(append(whole, "ADDED ns/c 108")...)
		}
		p.Passed(0)
	})
}

// byNamespace starts a server whose rules have namespaces name views. There is the namespace shop, which names none.
func byNamespace(t *testing.T, rules observe.Rules) (*bubble.Proxy, *proxytest.Collection) {
	up := proxytest.NewBubbleServer(t)
	namespaces := up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
	namespaces.Put("", "shop", "")
	p := bubble.Start(t, up, withViews(undone("")), bubble.NoneAlone, func(o *proxy.Options) { o.Observe.Clients = rules })
	return p, namespaces
}

// Who has been shown a state ahead of the cache's own resourceVersion, as a proof says, has to list too when
// its view changes.
func TestViewsByNamespaceAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, namespaces := byNamespace(t, observe.Rules{{ViewOf: observe.OfNamespace}})
		p.CMs.Put("ns", "b", "done")
		p.Send(as("shop", bubble.AnyState)).Watch().Want("ADDED ns/b 102", "END 102")
		namespaces.Put("", "other", "") // 103
		resp, body := p.Send(as("shop", bubble.CMs)).Read()
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"resourceVersion":"103"`) || !strings.Contains(body, `"done"`) {
			t.Fatalf("%s %s", resp.Status, body)
		}
		namespaces.Put("", "shop", "", view.Label, "undone")
		synctest.Wait()
		w := p.Send(as("shop", bubble.Since, 103)).Watch()
		synctest.Wait()
		if e := w.Events(); len(e) != 1 || e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410", w.Strings())
		}
	})
}

// A watch may be told more while its view changes, until its 410. A client that is cut off before that has to
// list too.
func TestViewsByNamespaceBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := make([]observe.Namespace, 100_000) // make the change last for some events
		p, namespaces := byNamespace(t, observe.Rules{{Namespaces: others, Mode: observe.Serve}, {ViewOf: observe.OfNamespace}})
		p.CMs.Put("ns", "a", "1")
		var all []*proxytest.Watcher
		for range 200 {
			w := p.Send(as("shop", bubble.AnyState)).Watch()
			w.Await(2)
			all = append(all, w)
		}
		go func() {
			for range 1000 {
				p.CMs.Put("ns", "b", "1")
			}
		}()
		for range 100 {
			p.CMs.Put("ns", "c", "1")
		}
		namespaces.Put("", "shop", "", view.Label, "undone")
		synctest.Wait()
		for _, w := range all {
			w.WantEnd()
			last := w.Events()[len(w.Events())-2].RV
			again := p.Send(as("shop", bubble.Since, last)).Watch()
			synctest.Wait()
			if e := again.Events(); len(e) != 1 || e[0].Type != "ERROR" {
				t.Fatalf("got %v behind %d, want 410", again.Strings(), last)
			}
		}
	})
}

// A pod that was away while its view changed has to list, also if another of its workload has listed meanwhile.
func TestViewsByNamespaceOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, namespaces := byNamespace(t, observe.Rules{{ViewOf: observe.OfNamespace}})
		const user, agent = "system:serviceaccount:shop:app", "agent/1"
		of := func(pod int, target string, args ...any) bubble.Request {
			claims := fmt.Sprintf(`{"sub":%q,"kubernetes.io":{"pod":{"uid":"%d"}}}`, user, pod)
			return bubble.Request{Token: "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s",
				Target: fmt.Sprintf(target, args...), Header: []string{"User-Agent", agent}}
		}
		slot := func(pod int) uint8 { return observe.SlotOf(observe.IDOf(user, fmt.Sprint(pod), agent, "")) }
		sibling := 1
		for slot(sibling) != slot(0) { // of a hundred pods, some share a slot
			sibling++
		}
		p.CMs.Put("ns", "b", "done")
		w := p.Send(of(0, bubble.AnyState)).Watch()
		w.Want("ADDED ns/b 102", "END 102")
		w.Close()
		namespaces.Put("", "shop", "", view.Label, "undone")
		synctest.Wait()
		if _, body := p.Send(of(sibling, bubble.CMs+"?resourceVersion=0")).Read(); strings.Contains(body, `"done"`) {
			t.Errorf("got %s", body)
		}
		for pod, want := range map[int]int{0: 1, sibling: 0} {
			again := p.Send(of(pod, bubble.Since, 102)).Watch()
			synctest.Wait()
			if e := again.Events(); len(e) != want || want > 0 && e[0].Type != "ERROR" {
				t.Errorf("pod %d: got %v, want %d", pod, again.Strings(), want)
			}
		}
	})
}

// A list whose pages are of two views is no list: the next page of one that began in another view is refused, and
// nobody resumes from it. Pages that began in the view go on.
func TestViewsByNamespacePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, namespaces := byNamespace(t, observe.Rules{{ViewOf: observe.OfNamespace}})
		for _, name := range []string{"a", "b", "c"} {
			p.CMs.Put("ns", name, "1")
		}
		p.Send(as("shop", bubble.AnyState)).Watch().Want("ADDED ns/a 102", "ADDED ns/b 103", "ADDED ns/c 104", "END 104")
		page := func(query string) (code int, token, body string) {
			t.Helper()
			resp, body := p.Send(as("shop", "%s", bubble.CMs+"?limit=1"+query)).Read()
			var list listMeta
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			return resp.StatusCode, list.Metadata.Continue, body
		}
		_, token, _ := page(notOlder)
		namespaces.Put("", "shop", "", view.Label, "undone")
		synctest.Wait()
		if code, _, body := page("&continue=" + token); code != http.StatusGone || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("the second page in another view: %d %s", code, body)
		}
		if e := p.Send(as("shop", bubble.Since, 104)).Watch().Await(1); e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410", e)
		}
		_, token, _ = page(notOlder)
		if code, _, body := page("&continue=" + token); code != http.StatusOK || !strings.Contains(body, `"name":"b"`) || strings.Contains(body, `"data"`) {
			t.Errorf("the second page in the same view: %d %s", code, body)
		}
		p.Passed(0)
	})
}

// A server that can't follow namespaces says so, and serves.
func TestViewsByNamespaceUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "done")
		p.Send(as("shop", bubble.AnyState)).Watch().Want("ADDED ns/a 101", "END 101")
		p.AwaitLog("Cannot follow namespaces")
	}, withViews(undone("")), func(o *proxy.Options) { o.Observe.Clients = observe.Rules{{ViewOf: observe.OfNamespace}} })
}
