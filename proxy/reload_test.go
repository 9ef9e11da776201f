package proxy_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// The rules of the configuration file count as soon as it changes: open watches end where their clients
// resume without a loss, and a wrong file changes nothing.
func TestReload(t *testing.T) {
	write, flags := reloaded(t, "idleTimeout: 1h\n")
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		time.Sleep(5 * time.Second)
		p.CMs.Put("ns", "a", "1")
		served := p.Watch(bubble.AnyState)
		served.Want("ADDED ns/a 101", "END 101")
		lasts := p.Watch(bubble.CMs + "?watch=1&resourceVersion=101") // its client may not resume
		p.Passed(0)

		write("clients:\n- mode: observe\n  userAgents: [" + proxytest.ClientAgent + "]\n")
		served.WantEnd()
		last := served.Events()[len(served.Events())-1]
		if last.Type != "BOOKMARK" || last.RV != 101 {
			t.Errorf("the watch ended behind %s", last)
		}
		passed := p.Watch(bubble.Since, last.RV)
		p.Passed(1)
		time.Sleep(5 * time.Second)
		p.CMs.Put("ns", "b", "1")
		passed.Want("ADDED ns/b 102")

		for _, wrong := range []string{"clients:\n- mode: shadow\n", "clients:\n- percent: 0\n  mode: off\n", "clients:\n- {}\n",
			"clientele: 3\n"} {
			write(wrong)
			time.Sleep(5 * time.Second)
			if !strings.Contains(metric(p), "watchfan_config_last_reload_successful 0") {
				t.Errorf("%q was read", wrong)
			}
		}
		if !passed.Open() || len(p.Log.With("config.yaml:", "clients")) != 3 {
			t.Error("a wrong file has an effect, or is not named")
		}

		write("idleTimeout: 2h\nclients: []\n")
		passed.WantEnd()
		p.AwaitLog("need a restart", "fields=idleTimeout")
		back := p.Watch(bubble.Since, 102)
		p.CMs.Put("ns", "c", "1")
		back.Want("ADDED ns/c 103")
		p.Passed(1)
		if !lasts.Open() || !strings.Contains(metric(p), "watchfan_config_last_reload_successful 1") {
			t.Error("a watch without bookmarks has ended, or the file is still wrong")
		}
		lasts.Want("ADDED ns/b 102", "ADDED ns/c 103")
		synctest.Wait()
	}, withFlags(flags))
}

// reloaded returns a function that writes the fields of a configuration file, and the flags of a watchfan that
// has read it with these fields.
func reloaded(t *testing.T, fields string) (write func(fields string), flags *proxy.Flags) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write = func(fields string) {
		t.Helper()
		text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\n" + fields
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fields)
	flags = proxy.NewFlags()
	if err := flags.Table.Flags().Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	if err := flags.Complete(); err != nil {
		t.Fatal(err)
	}
	return write, flags
}

// withFlags gives a server the options of flags, but for what the bubble sets.
func withFlags(flags *proxy.Flags) func(*proxy.Options) {
	return func(o *proxy.Options) {
		ports, lane := o.InsecurePort, o.Lane
		*o = flags.Options
		o.InsecurePort, o.SecurePort, o.AdminPort, o.Lane = ports, 0, ports, lane
	}
}

func metric(p *bubble.Proxy) string {
	_, text := p.Admin("/metrics")
	return text
}

// Views count as soon as the file changes. Watches of a resource whose form is the same end gracefully,
// and others have to list.
func TestReloadViews(t *testing.T) {
	views := func(keep string) string {
		return "views:\n- name: some\n  resources:\n" +
			"  - {resource: foos, keep: [metadata]}\n  - {resource: configmaps, keep: [" + keep + "]}\n"
	}
	write, flags := reloaded(t, views("metadata"))
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		const foos = "/views/some/apis/ex.io/v1/foos?watch=1&allowWatchBookmarks=true&resourceVersion=0"
		changed, same := p.Watch("/views/some"+bubble.AnyState), p.Watch(foos)
		changed.Want("ADDED ns/a 101", "END 101")
		same.Await(1)
		write(views("metadata, data"))
		changed.WantEnd()
		same.WantEnd()
		synctest.Wait() // the change has settled
		if e := changed.Events(); e[len(e)-1].Type != "ERROR" || !strings.Contains(e[len(e)-1].Raw, "410") {
			t.Errorf("got %v, want 410", changed.Strings())
		}
		if e := same.Events(); e[len(e)-1].Type != "BOOKMARK" {
			t.Errorf("got %v, want a bookmark", same.Strings())
		}
		for _, rv := range []int{100, 101} { // as of which a client may hold the old form
			if e := p.Watch("/views/some"+bubble.Since, rv).Await(1); e[0].Type != "ERROR" {
				t.Errorf("got %v, want 410", e)
			}
		}
		if _, body := p.Get("/views/some" + bubble.CMs + "?resourceVersion=0"); !strings.Contains(body, `"data"`) {
			t.Errorf("got %s", body)
		}
		p.CMs.Put("ns", "b", "1")
		again := p.Watch("/views/some" + bubble.AnyState)
		if e := again.Await(3); !strings.Contains(e[0].Raw, `"data"`) {
			t.Errorf("got %v", again.Strings())
		}
		p.Watch("/views/some"+bubble.Since, 101).Want("ADDED ns/b 102")
		p.Passed(0)
	}, withFlags(flags))
}

// A hundred views, one after the other, leave nothing behind: no forms of objects, and no metrics.
func TestReloadManyViews(t *testing.T) {
	views := func(i int) string {
		return fmt.Sprintf("views:\n- {name: v%d, quiet: true, resources: [{resource: configmaps, keep: [data, x%d]}]}\n#%s\n", i, i, strings.Repeat("#", i))
	}
	write, flags := reloaded(t, views(0))
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		for i := range 10 {
			p.CMs.Put("ns", fmt.Sprint(i), strings.Repeat("d", 1000))
		}
		var first int
		for i := range 100 {
			write(views(i))
			time.Sleep(time.Second)
			p.Watch("/views/v%d"+bubble.AnyState, i).Await(11)
			text, forms := metric(p), 0
			for _, found := range regexp.MustCompile(`(?m)^watchfan_cache_form_bytes{.* (\d+)$`).FindAllStringSubmatch(text, -1) {
				n, _ := strconv.Atoi(found[1])
				forms += n
			}
			if first = cmp.Or(first, forms); first == 0 || forms > 2*first || strings.Count(text, `watchfan_view_watchers{view="v`) != 1 {
				t.Fatalf("after %d views, forms take %d bytes, and took %d:\n%s", i, forms, first, text)
			}
		}
	}, withFlags(flags))
}

// A client that was away while the rules gave it another view, or none, has to list: what it holds is of another
// form. Then it resumes. A client whose view is the same resumes at once, and so does one of a resource that is
// the same in both.
func TestReloadRuledViews(t *testing.T) {
	const view = "views:\n- name: some\n  resources:\n  - {resource: configmaps, where: data.v notin (done)}\n"
	rule := view + "clients:\n- {view: some, userAgents: [" + proxytest.ClientAgent + "]}\n"
	write, flags := reloaded(t, view)
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "done")
		const other = "curl/1"
		agent := func(agent string, target string) *proxytest.Watcher {
			return p.Send(bubble.Request{Target: target, Header: []string{"User-Agent", agent}}).Watch()
		}
		since := fmt.Sprintf(bubble.Since, 102)
		p.Watch(bubble.AnyState).Want("ADDED ns/a 101", "ADDED ns/b 102", "END 102") // and is away until it has the view
		const foos = "/apis/ex.io/v1/foos?watch=1&allowWatchBookmarks=true&resourceVersion="
		p.Watch(foos + "0").Await(1)
		away := func(config string, want ...string) {
			t.Helper()
			write(config)
			time.Sleep(time.Second)
			if e := agent(proxytest.ClientAgent, since).Await(1); e[0].Type != "ERROR" || !strings.Contains(e[0].Raw, "410") {
				t.Errorf("got %v, want 410", e)
			}
			_, body := p.Get(bubble.CMs + "?resourceVersion=0")
			if has := strings.Contains(body, `"done"`); has != (config == view) {
				t.Errorf("got %s", body)
			}
			for _, w := range []*proxytest.Watcher{agent(proxytest.ClientAgent, since), agent(other, since), p.Watch(foos + "100")} {
				time.Sleep(time.Second)
				if len(w.Events()) > 0 || !w.Open() {
					t.Errorf("got %v", w.Strings())
				}
				w.Close()
			}
		}
		away(rule)
		away(view)
		away(rule)
		p.Passed(0)
		write(view + "clients:\n- {mode: observe, userAgents: [" + proxytest.ClientAgent + "]}\n")
		time.Sleep(time.Second)
		passed := p.Watch(bubble.AnyState) // it goes on for a while behind the change
		passed.Await(3)
		write(rule)
		time.Sleep(time.Second)
		p.CMs.Put("ns", "b", "2")
		p.CMs.Put("ns", "c", "done")
		passed.WantEnd()
		last := passed.Events()[len(passed.Events())-1].RV
		if e := p.Watch(bubble.Since, last).Await(1); last != 104 || e[0].Type != "ERROR" {
			t.Errorf("got %v behind %d, want 410", e, last)
		}
		if resp, body := p.Get(bubble.CMs + "?resourceVersion=0"); resp.StatusCode != http.StatusOK || strings.Contains(body, `"done"`) {
			t.Errorf("%s %s", resp.Status, body)
		}
		back := p.Watch(bubble.Since, last)
		p.CMs.Put("ns", "d", "1")
		back.Want("ADDED ns/d 105")
	}, withFlags(flags))
}

// A client whose reads pass through again, after it has read in a view, lists at kube-apiserver and goes on from there.
func TestReloadRuledViewsBack(t *testing.T) {
	const view = "views:\n- name: some\n  resources:\n  - {resource: configmaps, where: data.v notin (done)}\n"
	const off, some = view + "clients:\n- {mode: \"off\"}\n", view + "clients:\n- {view: some}\n"
	write, flags := reloaded(t, off)
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "done")
		passed := p.Watch(bubble.AnyState)
		passed.Await(3)
		write(some)
		time.Sleep(time.Second)
		passed.WantEnd()
		write(off)
		time.Sleep(time.Second)
		p.CMs.Put("ns", "c", "1")
		if resp, body := p.Get(bubble.CMs); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"resourceVersion":"103"`) {
			t.Fatalf("%s %s", resp.Status, body)
		}
		again := p.Watch(bubble.Since, 103)
		p.CMs.Put("ns", "d", "1")
		again.Want("ADDED ns/d 104")
	}, withFlags(flags))
}

// A client whose watch passes through in a view, and goes on for a while when it has none any more, lists at
// kube-apiserver, or watches anew, and goes on from there. What it was told before it does not resume from.
func TestReloadPassedViews(t *testing.T) {
	for name, anew := range map[string]func(p *bubble.Proxy){
		"list":     func(p *bubble.Proxy) { p.Get(bubble.CMs) },
		"gzip":     func(p *bubble.Proxy) { p.Get(bubble.CMs, "Accept-Encoding", "gzip") },
		"watch":    func(p *bubble.Proxy) { p.Watch(bubble.AnyState).Await(3) },
		"observed": func(p *bubble.Proxy) { p.Get(bubble.CMs) },
	} {
		mode := map[bool]string{false: "off", true: "observe"}[name == "observed"]
		write, flags := reloaded(t, "clients:\n- {view: lean}\n")
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.Up.On(proxytest.WatchList, 1<<20, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
			p.CMs.Put("ns", "a", "1")
			gone := func(rv int) {
				t.Helper()
				if resp, body := p.Get(fmt.Sprintf(bubble.Since, rv)); resp.StatusCode != http.StatusGone {
					t.Errorf("%s %s", resp.Status, body)
				}
			}
			passed := p.Watch(bubble.AnyState)
			passed.Await(2)
			write("clients:\n- {mode: \"" + mode + "\"}\n")
			time.Sleep(time.Second)
			p.CMs.Put("ns", "b", "1")
			passed.WantEnd()
			p.CMs.Put("ns", "c", strings.Repeat("c", 200<<10))
			gone(103)
			anew(p)
			time.Sleep(time.Second)
			synctest.Wait() // what is looked for once a second has been seen
			again := p.Watch(bubble.Since, 103)
			p.CMs.Put("ns", "d", "1")
			again.Want("ADDED ns/d 104")
			gone(102)
		}, withFlags(flags))
	}
}

// Of two informers of one client, one lists in the new view while the other's watch is told more in the form before.
// That has to list too.
func TestReloadViewsOfTwo(t *testing.T) {
	const exclude = "exclude: [configmaps]\n"
	write, flags := reloaded(t, exclude)
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		passed := p.Watch(bubble.Since, 101)
		p.Passed(1)
		write(exclude + "clients:\n- {view: lean}\n")
		time.Sleep(time.Second)
		p.Get(bubble.CMs)
		p.CMs.Put("ns", "b", "1")
		passed.Want("ADDED ns/b 102")
		passed.WantEnd()
		for range 2 {
			if resp, body := p.Get(fmt.Sprintf(bubble.Since, 102)); resp.StatusCode != http.StatusGone {
				t.Errorf("%s %s", resp.Status, body)
			}
		}
		p.Get(bubble.CMs)
		synctest.Wait()
		p.Watch(bubble.Since, 102)
		p.Passed(4) // and no 410
	}, withFlags(flags))
}

// A watch over a WebSocket that passes through ends with CLOSE when a rule names a view, and what its client was told
// more in between is of the form before. So it has to list.
func TestReloadViewsOfSockets(t *testing.T) {
	const exclude = "exclude: [configmaps]\n"
	message := func(text string) string { return "\x81" + string(rune(len(text))) + text }
	write, flags := reloaded(t, exclude)
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		events := []string{message(`{"type":"ADDED","object":{}}`), message(`{"type":"BOOKMARK","object":{}}`)}
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for _, e := range events {
				_, _ = io.WriteString(conn, e)
				time.Sleep(2 * time.Second)
			}
			time.Sleep(time.Minute)
		})
		passed := p.Send(bubble.Request{Target: fmt.Sprintf(bubble.Since, 101), Header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}})
		time.Sleep(time.Second)
		write(exclude + "clients:\n- {view: lean}\n")
		if _, got := passed.Read(); got != events[0]+events[1]+proxytest.CloseNormal {
			t.Errorf("got %q", got)
		}
		if resp, body := p.Get(fmt.Sprintf(bubble.Since, 102)); resp.StatusCode != http.StatusGone {
			t.Errorf("%s %s", resp.Status, body)
		}
		time.Sleep(2 * time.Minute) // upstream ends as well
	}, withFlags(flags))
}

// A watch that passes through because its lane is being filled ends when its client's view is another, although the
// lane is not filled yet.
func TestReloadWhileFilling(t *testing.T) {
	write, flags := reloaded(t, "clients: []\n")
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.On(proxytest.WatchList, 1<<20, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
		p.CMs.Put("ns", "a", "1")
		passed := p.Watch(bubble.Since, 101)
		p.Passed(1)
		write("clients:\n- {view: lean}\n")
		time.Sleep(5 * time.Second)
		passed.WantEnd()
	}, withFlags(flags))
}

// A client whose watch passes through when the first rule names its view has to list too.
func TestReloadFirstRuledView(t *testing.T) {
	const view = "views:\n- name: some\n  resources:\n  - {resource: configmaps, where: data.v notin (done)}\n"
	write, flags := reloaded(t, view)
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { c.Fail(http.StatusInternalServerError, "InternalError", "no", 0) })
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { time.Sleep(5 * time.Second); c.Serve() })
		passed := p.Watch(bubble.Since, 101)
		p.Passed(1)
		write(view + "clients:\n- {view: some}\n")
		time.Sleep(time.Second)
		p.CMs.Put("ns", "b", "done")
		passed.WantEnd()
		time.Sleep(10 * time.Second) // the lane is filled
		if e := p.Watch(bubble.Since, 102).Await(1); e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410", e)
		}
	}, withFlags(flags))
}

// A client that resumes by the path of a view while that is replaced, the first time that any is, has to list: what it
// holds is of the form before. Its watch begins later, when the history has come that it needs.
func TestReloadFirstReplacedView(t *testing.T) {
	keeps := func(field view.Kept) *view.Options {
		return &view.Options{Views: view.Configs{{Name: "some", Resources: []view.Part{{Resource: "configmaps", Keep: []view.Kept{field}}}}}}
	}
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("ns", "b", "1")
		p.Watch(bubble.AnyState).Await(3)
		p.Up.On(proxytest.Short, 1, func(c *proxytest.Call) { time.Sleep(time.Second); c.Serve() })
		var back *bubble.Client
		p.Server.ReplaceViews(keeps("immutable"), func() {
			back = p.Begin(bubble.Request{Target: "/views/some" + fmt.Sprintf(bubble.Since, 101)})
			synctest.Wait()
		})
		if e := back.Watch().Await(1); e[0].Type != "ERROR" {
			t.Errorf("got %v, want 410", e)
		}
	}, func(o *proxy.Options) { o.View = *keeps("data") })
}

// A view and the rule that names it change together. A client that comes back at once is never in between, where
// the rule would name a view that is gone.
func TestReloadRenamedView(t *testing.T) {
	config := func(name string) string {
		return "views:\n- name: " + name + "\n  resources:\n  - {resource: configmaps, where: data.v notin (done)}\n" +
			"clients:\n- {view: " + name + ", userAgents: [" + proxytest.ClientAgent + "]}\n- {viewOf: namespace}\n- {mode: \"off\"}\n"
	}
	write, flags := reloaded(t, config("some"))
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"}).Put("", "shop", "", "watchfan.io/view", "other")
		p := bubble.Start(t, up, withFlags(flags))
		p.CMs.Put("ns", "b", "done")
		shop := bubble.Request{Target: bubble.AnyState, Header: []string{"User-Agent", "curl/1"},
			Token: "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:shop:app"}`)) + ".s"}
		for range 3 { // pass through, and end one after the other once there is the view that they read in
			p.Send(shop).Watch().Await(2)
		}
		w := p.Watch(bubble.AnyState)
		w.Await(1)
		write(config("other"))
		w.WantEnd()
		if _, body := p.Get(bubble.CMs + "?resourceVersion=0"); strings.Contains(body, `"done"`) {
			t.Errorf("got %s", body)
		}
	})
}
