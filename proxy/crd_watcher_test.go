package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// customFan is a proxy before a kube-apiserver that has a definition of foos.
type customFan struct {
	*fan
	foos, definitions *proxytest.Collection
	generation        int
}

func startCustomFan(t *testing.T) *customFan {
	t.Helper()
	t.Parallel()
	up := proxytest.NewServer(t)
	f := &customFan{definitions: up.Add(proxytest.Definitions), foos: up.Collection(proxytest.Foos)}
	f.define(".data.v")
	f.foos.Put("ns", "a", "red")
	f.foos.Put("ns", "b", "blue")
	f.fan = startFan(t, up)
	return f
}

// define changes the definition of foos.
func (f *customFan) define(fields ...string) {
	f.generation++
	f.note(`"acceptedNames":{"plural":"foos"}`, fields...)
}

// note writes the definition with the given members of its status.
func (f *customFan) note(status string, fields ...string) {
	var selectable []string
	for _, path := range fields {
		selectable = append(selectable, fmt.Sprintf(`{"jsonPath":%q}`, path))
	}
	f.definitions.PutMembers("foos.ex.io", f.generation, fmt.Sprintf(
		`"spec":{"versions":[{"name":"v1","served":true,"selectableFields":[%s]}]},"status":{%s}`,
		strings.Join(selectable, ","), status))
}

var foosPath = proxytest.Foos.Path()

// list returns a list and whether it was passed through.
func (f *customFan) list(query string) (body string, passed bool) {
	f.t.Helper()
	before := f.up.Count(proxytest.Client)
	resp, body := f.get(foosPath + "?" + query)
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("list %s: %d %s", query, resp.StatusCode, body)
	}
	return body, f.up.Count(proxytest.Client) > before
}

// ends waits for a proper end, and fails the test if it comes too soon.
func (f *customFan) ends(w *proxytest.Watcher, since time.Time, least time.Duration) {
	f.t.Helper()
	if err := w.Ended(); err != nil {
		f.t.Errorf("the watch broke: %v", err)
	}
	if took := time.Since(since); took < least {
		f.t.Errorf("the watch ended after %s, want %s", took, least)
	}
}

const selectsRed = "resourceVersion=0&fieldSelector=data.v%3Dred"

// Objects are selected by the fields that their definition names, and by no others.
func TestDefinitionFields(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
	w.Await(1)
	f.foos.Put("ns", "b", "red")
	f.foos.Put("ns", "a", "blue")
	wantStrings(t, "watch", proxytest.Strings(w.Await(3)), "ADDED ns/a 102", "ADDED ns/b 104", "DELETED ns/a 105")
	body, passed := f.list(selectsRed)
	if passed || strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("passed through: %t, got %s", passed, body)
	}
	f.passed(0)
	for _, selector := range []string{"data.w%3Dred", "data%3Dred", "data.v%3Dred,data.w%3D"} {
		if _, passed := f.list("resourceVersion=0&fieldSelector=" + selector); !passed {
			t.Errorf("%s was not passed through", selector)
		}
	}
}

// A change of a definition's status ends no watch.
func TestDefinitionStatus(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
	w.Await(1)
	f.note(`"acceptedNames":{"plural":"foos"},"conditions":[{"type":"Established"}]`, ".data.v")
	time.Sleep(2500 * time.Millisecond)
	if _, passed := f.list(selectsRed); passed || !w.Open() {
		t.Errorf("passed through: %t, watch open: %t", passed, w.Open())
	}
	f.passed(0)
}

// When a definition changes, watches end with upstream's watch. Other reads do not get objects in
// the old form. New watches wait for the new form and never mix both.
func TestDefinitionChange(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
	w.Await(1)
	old := f.foos.Reflector()
	rv := f.up.RV()
	changed := time.Now()
	f.define(".data.w")
	f.foos.Reform("ns", "a", "redder")
	f.awaitLog("definition changed", "foos.ex.io", "generation=2")

	if body, passed := f.list("resourceVersion=0"); !passed || !strings.Contains(body, "redder") {
		t.Errorf("a list while it changed: passed through: %t, got %s", passed, body)
	}
	if _, passed := f.list(selectsRed); !passed {
		t.Error("selected by a field that is gone")
	}
	if !w.Open() {
		t.Error("the watch ended before upstream's")
	}
	// Upstream's old storage sends events for a while.
	old.Send(proxytest.Foos.Event("MODIFIED", "ns", "b", f.up.Bump(1)))
	w.Until("what the old storage has brought", func(events []proxytest.Event) bool { return len(events) >= 1 })
	old.End()
	f.ends(w, changed, 0)

	next := f.watch("%s", foosPath+"?watch=1&resourceVersion=0")
	if took := time.Since(changed); took < 1900*time.Millisecond || took > proxytest.Patience {
		t.Errorf("the next watch began after %s", took)
	}
	if events := next.Await(2); !strings.Contains(events[0].Raw, "redder") {
		t.Errorf("the next watch brought %s", events[0].Raw)
	}
	if n := f.up.Count(proxytest.Client); n != 2 {
		t.Errorf("%d requests were passed through, want the 2 lists", n)
	}
	if body, passed := f.list("resourceVersion=0"); passed || !strings.Contains(body, "redder") {
		t.Errorf("a list afterwards: passed through: %t, got %s", passed, body)
	}
	back := f.watch("%s", fmt.Sprintf("%s?watch=1&resourceVersion=%d", foosPath, rv))
	wantStrings(t, "a watch from before the change", proxytest.Strings(back.Await(1)), "ERROR 410")
}

// Watches end although upstream's watch does not.
func TestDefinitionChangeUnended(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&resourceVersion=0")
	idle := f.watch(anyState)
	w.Await(2)
	changed := time.Now()
	f.define(".data.v", ".data.w")
	f.ends(w, changed, 1900*time.Millisecond)
	if _, passed := f.list("resourceVersion=0&fieldSelector=data.w%3D"); passed {
		t.Error("a field of the new definition was passed through")
	}
	if !idle.Open() {
		t.Error("the watch of another resource ended")
	}
	f.passed(0)
}

// Clients wait for a storage that is being initialized. They do not pass through.
func TestDefinitionStorageBegins(t *testing.T) {
	f := startCustomFan(t)
	f.up.On(proxytest.Form, 2, func(c *proxytest.Call) {
		if strings.HasPrefix(c.R.URL.Path, foosPath) {
			c.Fail(http.StatusTooManyRequests, "TooManyRequests", "storage is (re)initializing", 0)
			return
		}
		c.Serve()
	})
	f.watch("%s", foosPath+"?watch=1&resourceVersion=0").Await(2)
	f.passed(0)
}

// When a definition is deleted, watches get the deletions of its objects and end. Then upstream
// answers itself that the resource does not exist.
func TestDefinitionDeleted(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
	w.Await(1)
	slow := f.foos.Reflector()
	slow.Hold()
	f.foos.Delete("ns", "a")
	f.definitions.Delete("", "foos.ex.io")
	f.awaitLog("definition changed", "foos.ex.io", "served=false")
	if _, passed := f.list("resourceVersion=0"); !passed {
		t.Error("a resource that is gone was served")
	}
	slow.Release()
	slow.End()
	if err := w.Ended(); err != nil {
		t.Error(err)
	}
	wantStrings(t, "watch", w.Strings(), "ADDED ns/a 102", "DELETED ns/a 104")

	f.define(".data.w") // it comes back with another definition
	f.foos.Reform("ns", "b", "bluer")
	f.awaitLog("definition changed", "foos.ex.io", "served=true")
	events := f.watch("%s", foosPath+"?watch=1&resourceVersion=0").Await(1)
	if !strings.Contains(events[0].Raw, "bluer") {
		t.Errorf("the new definition's watch brought %s", events[0].Raw)
	}
	f.passed(1)
}

// A lane that may have begun on the storage of an earlier definition does not outlive it.
func TestDefinitionDoubtful(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&resourceVersion=0")
	w.Await(2)
	f.foos.Reform("ns", "a", "redder")
	f.foos.Reflector().End()
	f.ends(w, time.Now(), 0)
	if body, passed := f.list("resourceVersion=0"); passed || !strings.Contains(body, "redder") {
		t.Errorf("passed through: %t, got %s", passed, body)
	}
}

// If definitions are not served, do not exist or cannot be read, custom resources are still served.
// Only requests that select by a custom resource's own fields pass through.
func TestDefinitionsUnknown(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := proxytest.NewServer(t)
			prepare(up)
			up.Collection(proxytest.Foos).Put("ns", "a", "red")
			f := &customFan{fan: startFan(t, up), foos: up.Collection(proxytest.Foos)}
			w := f.watch("%s", foosPath+"?watch=1&resourceVersion=0")
			w.Await(1)
			if _, passed := f.list("resourceVersion=0"); passed {
				t.Error("a list was passed through")
			}
			if _, passed := f.list(selectsRed); !passed {
				t.Error("selected by a field that is not known")
			}
			f.foos.Reflector().Abort()
			f.foos.Put("ns", "b", "blue")
			w.Await(2)
		})
	}
}

// Definitions whose watch is broken are trusted for a short time only. After it, requests that
// select by their fields pass through. Open watches stay.
func TestDefinitionsBroken(t *testing.T) {
	f := startCustomFan(t)
	w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
	w.Await(1)
	fail := func(c *proxytest.Call) {
		if strings.HasPrefix(c.R.URL.Path, foosPath) {
			c.Serve()
			return
		}
		c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
	}
	f.up.On(proxytest.Watch, 1000, fail)
	f.up.On(proxytest.Form, 1000, fail)
	f.up.On(proxytest.Probe, 1000, fail)
	f.definitions.Reflector().Abort()
	f.until("pass-through of selectors", func() bool {
		_, passed := f.list(selectsRed)
		return passed
	})
	if _, passed := f.list("resourceVersion=0&fieldSelector=metadata.name%3Da"); passed {
		t.Error("selected by name: passed through")
	}
	f.up.Forget()
	f.until("an answer from the cache", func() bool {
		_, passed := f.list(selectsRed)
		return !passed
	})
	if !w.Open() {
		t.Error("the watch ended although the definition is the same")
	}
}

// Definitions that could be listed, but never watched, are no better than those whose watch is
// broken.
func TestDefinitionsNeverWatched(t *testing.T) {
	f := startCustomFan(t)
	f.up.SetWatchList(false)
	f.up.On(proxytest.Watch, 1000, func(c *proxytest.Call) {
		if strings.HasPrefix(c.R.URL.Path, foosPath) {
			c.Serve()
			return
		}
		c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
	})
	if _, passed := f.list(selectsRed); passed {
		t.Error("new definitions are not trusted")
	}
	f.until("pass-through of selectors", func() bool {
		_, passed := f.list(selectsRed)
		return passed
	})
}

// Definitions are not followed while custom resources have no lanes.
func TestDefinitionsLetGo(t *testing.T) {
	t.Parallel()
	up := proxytest.NewServer(t)
	f := &customFan{definitions: up.Add(proxytest.Definitions), foos: up.Collection(proxytest.Foos)}
	f.define(".data.v")
	f.foos.Put("ns", "a", "red")
	f.fan = startFan(t, up, func(o *proxy.Options) { o.Lane.IdleTimeout = 10 * time.Millisecond })
	for range 2 {
		w := f.watch("%s", foosPath+"?watch=1&"+selectsRed)
		w.Await(1)
		if n := f.up.Open(proxytest.WatchList); n != 2 {
			t.Errorf("%d upstream watches, want 2", n)
		}
		w.Close()
		f.until("end of both upstream watches", func() bool { return f.up.Open(proxytest.WatchList) == 0 })
	}
	f.passed(0)
}

// One watch follows the definitions for all lanes of custom resources.
func TestDefinitionsFollowedByOneWatch(t *testing.T) {
	f := startCustomFan(t)
	for range 5 {
		f.watch("%s", foosPath+"?watch=1&"+selectsRed).Await(1)
	}
	f.watch(anyState)
	lists := 0
	for _, r := range f.up.Requests(proxytest.WatchList) {
		if r.Path == proxytest.Definitions.Path() {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("%d WatchLists of definitions, want 1", lists)
	}
}
