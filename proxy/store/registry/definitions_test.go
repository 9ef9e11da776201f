package registry_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// custom is a proxy before a kube-apiserver that has a definition of foos.
type custom struct {
	*bubble.Proxy
	foos, definitions *proxytest.Collection
	generation        int
}

// start runs a proxy. ns/a and ns/b are created at resourceVersions 102 and 103.
func start(t *testing.T, change ...func(*proxy.Options)) *custom {
	up := proxytest.NewBubbleServer(t)
	p := &custom{definitions: up.Add(proxytest.Definitions), foos: up.Collection(proxytest.Foos)}
	p.define(".data.v")
	p.foos.Put("ns", "a", "red")
	p.foos.Put("ns", "b", "blue")
	p.Proxy = bubble.Start(t, up, change...)
	return p
}

// define changes the definition of foos.
func (p *custom) define(fields ...string) {
	p.generation++
	p.note(`"acceptedNames":{"plural":"foos"}`, fields...)
}

// note writes the definition with the given members of its status.
func (p *custom) note(status string, fields ...string) {
	var selectable []string
	for _, path := range fields {
		selectable = append(selectable, fmt.Sprintf(`{"jsonPath":%q}`, path))
	}
	p.definitions.PutMembers("foos.ex.io", p.generation, fmt.Sprintf(
		`"spec":{"versions":[{"name":"v1","served":true,"selectableFields":[%s]}]},"status":{%s}`,
		strings.Join(selectable, ","), status))
}

// list returns a list and whether it was passed through.
func (p *custom) list(query string) (body string, passed bool) {
	p.T.Helper()
	before := p.Up.Count(proxytest.Client)
	resp, body := p.Get(foos + "?" + query)
	if resp.StatusCode != http.StatusOK {
		p.T.Fatalf("list %s: %d %s", query, resp.StatusCode, body)
	}
	return body, p.Up.Count(proxytest.Client) > before
}

// ends waits for a proper end of a watch, and fails the test unless it comes after the given time.
func (p *custom) ends(w *proxytest.Watcher, after time.Duration) {
	p.T.Helper()
	began := time.Now()
	w.WantEnd()
	if took := time.Since(began); took != after {
		p.T.Errorf("the watch ended after %s, want %s", took, after)
	}
}

const (
	foos       = "/apis/ex.io/v1/foos"
	watch      = foos + "?watch=1&resourceVersion=0"
	selectsRed = "resourceVersion=0&fieldSelector=data.v%3Dred"
	watchRed   = foos + "?watch=1&resourceVersion=0&fieldSelector=data.v%%3Dred"
)

// Objects are selected by the fields that their definition names, and by no others.
func TestFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watchRed)
		w.Await(1)
		p.foos.Put("ns", "b", "red")
		p.foos.Put("ns", "a", "blue")
		w.Want("ADDED ns/a 102", "ADDED ns/b 104", "DELETED ns/a 105")
		body, passed := p.list(selectsRed)
		if passed || strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"name":"b"`) {
			t.Errorf("passed through: %t, got %s", passed, body)
		}
		for _, selector := range []string{"data.w%3Dred", "data%3Dred", "data.v%3Dred,data.w%3D"} {
			if _, passed := p.list("resourceVersion=0&fieldSelector=" + selector); !passed {
				t.Errorf("%s was not passed through", selector)
			}
		}
	})
}

// A change of a definition's status ends no watch.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watchRed)
		w.Await(1)
		p.note(`"acceptedNames":{"plural":"foos"},"conditions":[{"type":"Established"}]`, ".data.v")
		time.Sleep(time.Minute)
		if _, passed := p.list(selectsRed); passed || !w.Open() {
			t.Errorf("passed through: %t, watch open: %t", passed, w.Open())
		}
	})
}

// When a definition changes, watches end with upstream's watch. Other reads do not get objects in
// the old form. New watches wait for the new form and never mix both.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watchRed)
		time.Sleep(4 * time.Minute) // its storage is beyond doubt
		old, rv, changed := p.foos.Reflector(), p.Up.RV(), time.Now()
		p.define(".data.w")
		p.foos.Reform("ns", "a", "redder")
		p.AwaitLog("definition changed", "foos.ex.io", "generation=2")
		if body, passed := p.list("resourceVersion=0"); !passed || !strings.Contains(body, "redder") {
			t.Errorf("a list while it changed: passed through: %t, got %s", passed, body)
		}
		if _, passed := p.list(selectsRed); !passed {
			t.Error("selected by a field that is gone")
		}
		if !w.Open() {
			t.Error("the watch ended before upstream's")
		}
		// Upstream's old storage sends events for a while.
		old.Send(proxytest.Foos.Event("MODIFIED", "ns", "b", p.Up.Bump(1)))
		synctest.Wait()
		old.End()
		p.ends(w, 0)
		proxytest.WantStrings(t, "watch", w.Strings(), "ADDED ns/a 102")

		next := p.Watch(watch)
		if took := time.Since(changed); took != lane.SettleTime {
			t.Errorf("the next watch began after %s", took)
		}
		if events := next.Await(2); !strings.Contains(events[0].Raw, "redder") {
			t.Errorf("the next watch brought %s", events[0].Raw)
		}
		if body, passed := p.list("resourceVersion=0"); passed || !strings.Contains(body, "redder") {
			t.Errorf("a list afterwards: passed through: %t, got %s", passed, body)
		}
		p.Passed(2)
		back := p.Watch("%s?watch=1&resourceVersion=%d", foos, rv)
		back.Want("ERROR 410")
	})
}

// What --cache-dir has of an earlier definition does not fill the lane of the next, although upstream's old storage
// has sent events until after the new one began.
func TestChangeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, key, err := downstream.SelfSigned(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, func(o *proxy.Options) {
			o.Downstream.TLSCertFile, o.Downstream.TLSPrivateKeyFile, o.Seed.CacheDir = cert, key, t.TempDir()
		})
		w := p.Watch(watch)
		w.Await(2)
		time.Sleep(4 * time.Minute) // its storage is beyond doubt
		old := p.foos.Reflector()
		p.define(".data.w")
		p.foos.Reform("ns", "a", "redder")
		p.AwaitLog("definition changed", "foos.ex.io", "generation=2")
		old.Send(proxytest.Foos.Event("MODIFIED", "ns", "b", p.Up.Bump(1)))
		time.Sleep(time.Second)
		old.End()
		w.WantEnd()
		if events := p.Watch(watch).Await(2); !strings.Contains(events[0].Raw, "redder") {
			t.Errorf("the next watch brought %s", events[0].Raw)
		}
		if body, passed := p.list("resourceVersion=0"); passed || !strings.Contains(body, "redder") {
			t.Errorf("a list afterwards: passed through: %t, got %s", passed, body)
		}
	})
}

// Watches end although upstream's watch does not.
func TestChangeUnended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w, other := p.Watch(watch), p.Watch(bubble.AnyState)
		w.Await(2)
		p.define(".data.v", ".data.w")
		p.ends(w, lane.SettleTime)
		if _, passed := p.list("resourceVersion=0&fieldSelector=data.w%3D"); passed {
			t.Error("a field of the new definition was passed through")
		}
		if !other.Open() {
			t.Error("the watch of another resource ended")
		}
		p.Passed(0)
	})
}

// Clients wait for a storage that is being initialized. They do not pass through.
func TestStorageBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		p.Up.On(proxytest.Form, 2, func(c *proxytest.Call) {
			if strings.HasPrefix(c.R.URL.Path, foos) {
				c.Fail(http.StatusTooManyRequests, "TooManyRequests", "storage is (re)initializing", 0)
				return
			}
			c.Serve()
		})
		p.Watch(watch).Await(2)
		p.Passed(0)
	})
}

// When a definition is deleted, watches get the deletions of its objects and end. Then upstream
// answers itself that the resource does not exist.
func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watchRed)
		w.Await(1)
		slow := p.foos.Reflector()
		slow.Hold()
		p.foos.Delete("ns", "a")
		p.definitions.Delete("", "foos.ex.io")
		p.AwaitLog("definition changed", "foos.ex.io", "served=false")
		if _, passed := p.list("resourceVersion=0"); !passed {
			t.Error("a resource that is gone was served")
		}
		slow.Release()
		slow.End()
		p.ends(w, 0)
		proxytest.WantStrings(t, "watch", w.Strings(), "ADDED ns/a 102", "DELETED ns/a 104")

		p.define(".data.w") // it comes back with another definition
		p.foos.Reform("ns", "b", "bluer")
		p.AwaitLog("definition changed", "foos.ex.io", "served=true")
		if events := p.Watch(watch).Await(1); !strings.Contains(events[0].Raw, "bluer") {
			t.Errorf("the new definition's watch brought %s", events[0].Raw)
		}
		p.Passed(1)
	})
}

// A lane that may have begun on the storage of an earlier definition does not outlive it.
func TestDoubtful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watch)
		w.Await(2)
		p.foos.Reform("ns", "a", "redder")
		p.foos.Reflector().End()
		p.ends(w, 0)
		if body, passed := p.list("resourceVersion=0"); passed || !strings.Contains(body, "redder") {
			t.Errorf("passed through: %t, got %s", passed, body)
		}
	})
}

// If definitions are not served, do not exist or cannot be read, custom resources are still served.
// Only requests that select by a custom resource's own fields pass through.
func TestUnknown(t *testing.T) {
	for name, prepare := range map[string]func(*proxytest.Server){
		"not served": func(*proxytest.Server) {},
		"none":       func(up *proxytest.Server) { up.Add(proxytest.Definitions) },
		"forbidden": func(up *proxytest.Server) {
			up.Add(proxytest.Definitions)
			up.On(proxytest.Form, 1, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
		},
		"hangs": func(up *proxytest.Server) {
			up.Add(proxytest.Definitions)
			up.On(proxytest.Form, 1, (*proxytest.Call).Hang)
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			up := proxytest.NewBubbleServer(t)
			prepare(up)
			up.Collection(proxytest.Foos).Put("ns", "a", "red")
			p := &custom{Proxy: bubble.Start(t, up), foos: up.Collection(proxytest.Foos)}
			w := p.Watch(watch)
			w.Await(1)
			if _, passed := p.list("resourceVersion=0"); passed {
				t.Error("a list was passed through")
			}
			if _, passed := p.list(selectsRed); !passed {
				t.Error("selected by a field that is not known")
			}
			p.foos.Reflector().Abort()
			p.foos.Put("ns", "b", "blue")
			w.Await(2)
		})
	}
}

// Definitions whose watch is broken, or has never begun, are trusted for 5 s only. After that,
// requests that select by their fields pass through. Open watches stay.
func TestBroken(t *testing.T) {
	for name, watched := range map[string]bool{"broken": true, "never watched": false} {
		bubble.Run(t, name, func(t *testing.T) {
			p := start(t)
			p.Up.SetWatchList(watched)
			fail := func(c *proxytest.Call) {
				if strings.HasPrefix(c.R.URL.Path, foos) {
					c.Serve()
					return
				}
				c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
			}
			if !watched {
				p.Up.On(proxytest.Watch, 1000, fail)
			}
			w := p.Watch(watchRed)
			w.Await(1)
			if watched {
				for _, kind := range []proxytest.Kind{proxytest.Watch, proxytest.Form, proxytest.Probe} {
					p.Up.On(kind, 1000, fail)
				}
				p.definitions.Reflector().Abort()
			}
			for _, trusted := range []bool{true, false} {
				if _, passed := p.list(selectsRed); passed == trusted {
					t.Errorf("selected by a field: passed through: %t", passed)
				}
				time.Sleep(5 * time.Second)
			}
			if _, passed := p.list("resourceVersion=0&fieldSelector=metadata.name%3Da"); passed {
				t.Error("selected by name: passed through")
			}
			p.Up.Forget()
			time.Sleep(30 * time.Second)
			if _, passed := p.list(selectsRed); passed {
				t.Error("passed through although the definitions are watched again")
			}
			if !w.Open() {
				t.Error("the watch ended although the definition is the same")
			}
		})
	}
}

// One watch follows the definitions for all lanes of custom resources. Definitions are not followed
// while custom resources have no lanes.
func TestFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, func(o *proxy.Options) { o.Lane.IdleTimeout = time.Minute })
		other := p.Watch(bubble.AnyState)
		open := func() (most int) { // an upstream watch that ends begins again within seconds
			for range 30 {
				time.Sleep(time.Second)
				most = max(most, p.Up.Open(proxytest.WatchList)+p.Up.Open(proxytest.Watch))
			}
			return most
		}
		for i := range 2 {
			var watches []*proxytest.Watcher
			for range 5 {
				w := p.Watch(watchRed)
				w.Await(1)
				watches = append(watches, w)
			}
			time.Sleep(5 * time.Minute)
			lists, n := 0, open()
			for _, r := range p.Up.Requests(proxytest.WatchList) {
				if r.Path == proxytest.Definitions.Path() {
					lists++
				}
			}
			if lists != i+1 || n != 3 {
				t.Errorf("%d lists of definitions and %d upstream watches, want %d and 3", lists, n, i+1)
			}
			for _, w := range watches {
				w.Close()
			}
			time.Sleep(5 * time.Minute)
			if n := open(); n != 1 {
				t.Errorf("%d upstream watches, want that of the other resource", n)
			}
		}
		other.Close()
		p.Passed(0)
	})
}

// Definitions are followed again when their lane has ended, although no request asks for them.
func TestFollowedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		w := p.Watch(watch)
		w.Await(2)
		time.Sleep(4 * time.Minute)
		p.Up.On(proxytest.Probe, 1, func(c *proxytest.Call) { c.Fail(http.StatusNotFound, "NotFound", "not yet", 0) })
		p.definitions.Reflector().Abort()
		p.AwaitLog("upstream does not serve the resource", proxytest.Definitions.Name)
		time.Sleep(30 * time.Second)
		p.define(".data.w")
		p.ends(w, lane.SettleTime)
	})
}

// A restored etcd that lacks a definition is noticed as soon as a deletion.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		p.Watch(watch).Await(2)
		time.Sleep(4 * time.Minute)
		p.definitions.Restore(50)
		p.AwaitLog("Upstream went back in time", proxytest.Definitions.Name)
		restored := time.Now()
		p.AwaitLog("definition changed", "foos.ex.io", "served=false")
		if took := time.Since(restored); took != 0 {
			t.Errorf("it was noticed after %s", took)
		}
	})
}

// A definition that comes back in another scope is not served as discovery has described the earlier one.
func TestOtherScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, bubble.NoneAlone)
		scope := map[bool]string{true: "Namespaced", false: "Cluster"}
		namespaced := true
		p.Up.On(proxytest.Other, 1<<20, func(c *proxytest.Call) {
			if c.R.URL.Path != "/apis/ex.io/v1" {
				c.Serve()
				return
			}
			c.Write(fmt.Sprintf(`{"kind":"APIResourceList","resources":[{"name":"foos","kind":"Foo","namespaced":%t,"verbs":["list","watch"]}]}`,
				namespaced))
		})
		inNamespace := strings.Replace(foos, "foos", "namespaces/ns/foos?resourceVersion=0", 1)
		p.Get(strings.Replace(foos, "foos", "namespaces/ns/foos/a", 1)) // starts no lane, so nobody follows the definitions
		p.Passed(1)
		namespaced = false
		p.definitions.PutMembers("foos.ex.io", 2, fmt.Sprintf(
			`"spec":{"scope":%q,"versions":[{"name":"v1","served":true}]},"status":{}`, scope[namespaced]))
		for range 2 {
			p.Get(inNamespace)
		}
		p.Passed(3)
		if _, passed := p.list("resourceVersion=0"); passed {
			t.Error("a list in the new scope was passed through")
		}
	})
}
