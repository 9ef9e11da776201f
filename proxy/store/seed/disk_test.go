package seed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

const diskFile = "v1_configmaps_json.watch"

// keeps has a replica keep its caches in dir.
func keeps(dir string) func(*proxy.Options) {
	return func(o *proxy.Options) { o.Seed.CacheDir = dir }
}

// kept returns a directory as a killed replica leaves it, which had 300 objects and then some changes.
func (x *tier) kept() (dir string) {
	x.t.Helper()
	ones := x.t.TempDir()
	one := x.replica(nil, keeps(ones))
	for i := range 300 {
		x.cms.Put("ns", fmt.Sprintf("c%03d", i), strings.Repeat("x", 200))
	}
	w := one.Watch(bubble.AnyState)
	w.AwaitVersion(x.cms.Put("ns", "a", "1"))
	time.Sleep(time.Minute) // all of it is written
	x.cms.Delete("ns", "c000")
	x.cms.Put("ns", "c001", "2")
	w.AwaitVersion(x.cms.Put("ns", "d", "1"))
	time.Sleep(time.Minute)
	dir = filepath.Join(x.t.TempDir(), "killed")
	if err := os.CopyFS(dir, os.DirFS(ones)); err != nil {
		x.t.Fatal(err)
	}
	one.Stop()
	return dir
}

// A replica that starts again goes on where its file ends: kube-apiserver lists nothing, and what has
// happened meanwhile is not missing.
func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		dir := x.kept()
		x.cms.Delete("ns", "c002")
		x.cms.Put("ns", "e", "1")
		x.wantLists(1)
		two := x.replica(nil, keeps(dir))
		w := two.Watch(bubble.AnyState)
		two.AwaitLog("Filled without a list", "source=--cache-dir", "objects=301")
		w.AwaitVersion(x.cms.Put("ns", "f", "1"))
		got := anyList(two)
		x.wantLists(1)
		three := x.replica(nil)
		if want := anyList(three); got != want {
			t.Errorf("lists are\n%.3000s\nafter the restart, want\n%.3000s", got, want)
		}
		if got := filledOf(two); got.Source != "disk" || got.From() != "--cache-dir" {
			t.Errorf("filled %+v", got)
		}
	})
}

// Whatever is wrong with a file, what clients get is right: the lane is listed, or goes on from an earlier
// time.
func TestDiskDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		dir := x.kept()
		whole, err := os.ReadFile(filepath.Join(dir, diskFile))
		if err != nil {
			t.Fatal(err)
		}
		another := newTier(t)
		f := func(name string, content []byte, source string, change ...func(*proxy.Options)) {
			t.Helper()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, diskFile), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "old" {
				if err := os.Chtimes(filepath.Join(dir, diskFile), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			p := x.replica(nil, append(change, keeps(dir))...)
			p.Watch(bubble.AnyState).AwaitVersion(x.cms.Put("ns", "g", name))
			q := x.replica(nil)
			if got, want := anyList(p), anyList(q); got != want {
				t.Errorf("%s: lists are\n%.3000s\nwant\n%.3000s", name, got, want)
			}
			if got := filledOf(p); got.Source != source {
				t.Errorf("%s: filled from %s, want %s", name, got.Source, source)
			}
			p.Stop()
			q.Stop()
		}
		changed := func(at int) []byte {
			c := []byte(string(whole))
			c[at] ^= 1
			return c
		}
		f("whole", whole, "disk")
		f("torn at its end", whole[:len(whole)-1], "disk")
		f("without its initial events", whole[:70_000], "upstream")
		f("torn in its first chunk", whole[:100], "upstream")
		f("empty", nil, "upstream")
		f("changed in its name", changed(0), "upstream")
		f("changed in its salt", changed(20), "upstream")
		f("changed in a length", changed(49), "upstream")
		f("changed in an object", changed(1000), "upstream")
		f("changed in its last change", changed(len(whole)-1), "disk")
		f("old", whole, "upstream")
		f("of another key", whole, "upstream", func(o *proxy.Options) {
			o.Downstream.TLSCertFile, o.Downstream.TLSPrivateKeyFile = another.cert, another.key
		})
		x.up.On(proxytest.Identity, 1, func(c *proxytest.Call) {
			fmt.Fprint(c.W, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"another"}}`)
		})
		f("of another cluster", whole, "upstream")
	})
}

// A client of a view that selects namespaces by their labels lists again if those have changed while no replica ran,
// of events too: the file knows nothing of namespaces.
func TestDiskOfView(t *testing.T) {
	for _, resource := range []proxytest.Resource{proxytest.ConfigMaps, proxytest.Events} {
		bubble.Run(t, resource.Name, func(t *testing.T) {
			x := newTier(t)
			inView := func(o *proxy.Options) {
				o.View.Views = []view.Config{{Name: "team", Resources: []view.Part{{Resource: view.Resource(resource.Name),
					Namespaces: view.Namespaces{Labels: "team=a"}}}}}
			}
			path := "/views/team" + resource.Path()
			namespaces := x.up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
			namespaces.Put("", "ns", "", "team", "a")
			namespaces.Put("", "other", "", "team", "a")
			objects := x.up.Collection(resource)
			objects.Put("ns", "a", "1") // 103
			dir := t.TempDir()
			one := x.replica(nil, keeps(dir), inView)
			one.Watch("%s?watch=1&resourceVersion=0", path).Want("ADDED ns/a 103")
			time.Sleep(time.Minute)
			one.Stop()
			namespaces.Put("", "ns", "", "team", "b")
			two := x.replica(nil, keeps(dir), inView)
			if e := two.Watch("%s?watch=1&resourceVersion=103", path).Await(1); e[0].Code != http.StatusGone {
				t.Errorf("got %v, want 410: ns/a is in the view no longer", e)
			}
			two.AwaitLog("Filled without a list", "resource=v1/"+resource.Name)
			from := objects.Put("other", "b", "1")
			synctest.Wait()
			w := two.Watch("%s?watch=1&resourceVersion=%d", path, from)
			w.AwaitVersion(objects.Put("other", "c", "1"))
		})
	}
}

// A file that has grown gives way to another.
func TestDiskGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		dir := t.TempDir()
		p := x.replica(nil, keeps(dir))
		x.cms.Put("ns", "a", "0")
		w := p.Watch(bubble.AnyState)
		for i := range 100 {
			w.AwaitVersion(x.cms.Put("ns", "a", fmt.Sprint(i)+strings.Repeat("x", 100<<10)))
		}
		time.Sleep(time.Minute)
		info, err := os.Stat(filepath.Join(dir, diskFile))
		if err != nil || info.Size() > 6<<20 {
			t.Errorf("%v, %v", info, err)
		}
		p.Stop()
		x.replica(nil, keeps(dir), resident).AwaitLog("Filled without a list", "source=--cache-dir", "objects=1")
	})
}

// Clients do not notice that a directory can't be written.
func TestDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTier(t)
		dir := filepath.Join(t.TempDir(), "gone")
		p := x.replica(nil, keeps(dir))
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		w := p.Watch(bubble.AnyState)
		p.AwaitLog("The cache is not kept on disk")
		w.AwaitVersion(x.cms.Put("ns", "a", "1"))
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seed.NewDisk(&seed.Options{CacheDir: file}, nil); err == nil || !strings.Contains(err.Error(), "give a directory") {
		t.Error(err)
	}
}

// A replica that may not read which cluster it serves keeps nothing, and says so once.
func TestDiskUnidentified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, dir := newTier(t), t.TempDir()
		x.up.On(proxytest.Identity, 1<<20, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
		p := x.replica(nil, keeps(dir))
		p.Watch(bubble.AnyState).Await(1)
		time.Sleep(5 * time.Minute)
		if got := p.Log.With("The cache is not kept on disk", "get namespace kube-system", "403"); len(got) != 1 {
			t.Errorf("it says %s", got)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("it keeps %v, %v", files, err)
		}
	})
}

func TestDiskKeeps(t *testing.T) {
	f := func(resource string, secrets, want bool) {
		t.Helper()
		d, err := seed.NewDisk(&seed.Options{CacheDir: t.TempDir(), CacheDirSecrets: secrets}, nil)
		if got := d.Keeps(resource); err != nil || got != want {
			t.Errorf("%s: %v, %v", resource, got, err)
		}
	}
	f("v1/pods", false, true)
	f("a.example.com/v1/things", false, true)
	f("v1/secrets", false, false)
	f("v1/secrets", true, true)
	f("v1/a b", false, false)
	if (*seed.Disk)(nil).Keeps("v1/pods") {
		t.Error("no directory keeps pods")
	}
}

// What is read of a file that anybody has changed is a beginning of what was written.
func FuzzDisk(f *testing.F) {
	dir := f.TempDir()
	d, err := seed.NewDisk(&seed.Options{CacheDir: dir}, func() ([]byte, error) { return []byte("key"), nil })
	if err != nil {
		f.Fatal(err)
	}
	file, err := d.Create("v1/a_json", "1 c b")
	if err != nil {
		f.Fatal(err)
	}
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintln(&text, i)
	}
	_, err = io.Copy(file, strings.NewReader(text.String()))
	name := filepath.Join(dir, "v1_a_json.watch")
	err = errors.Join(err, file.Publish(), file.Close())
	whole, failed := os.ReadFile(name)
	if err = errors.Join(err, failed); err != nil {
		f.Fatal(err)
	}
	f.Add(0, 0, []byte{})                    // whole
	f.Add(0, len(whole), []byte{})           // empty
	f.Add(70_000, 1, []byte("x"))            // one byte is another
	f.Add(65_600, 65_556, []byte{})          // a chunk is missing
	f.Add(49, 4, []byte("\xff\xff\xff\xff")) // an endless chunk
	f.Fuzz(func(t *testing.T, at, cut int, instead []byte) {
		at = min(max(at, 0), len(whole))
		end := at + min(max(cut, 0), len(whole)-at)
		if err := os.WriteFile(name, slices.Concat(whole[:at], instead, whole[end:]), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := d.Open("v1/a_json", "1 c b")
		if err != nil {
			return
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if err != nil || len(got) == 0 || !strings.HasPrefix(text.String(), string(got)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// What a replica knows to be wrong is gone with it: the next one lists.
func TestDiskKnownWrong(t *testing.T) {
	f := func(name string, wrong func(*tier, *bubble.Proxy)) {
		bubble.Run(t, name, func(t *testing.T) {
			x, dir := newTier(t), t.TempDir()
			one := x.replica(nil, keeps(dir), func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = 10 * time.Second })
			x.cms.Put("ns", "a", "1")
			one.Watch(bubble.AnyState).Await(2)
			time.Sleep(5 * time.Second)
			wrong(x, one)
			time.Sleep(5 * time.Second)
			one.Stop()
			two := x.replica(nil, keeps(dir))
			if got := anyList(two); strings.Contains(got, "ghost") || !strings.Contains(got, `"name":"a"`) {
				t.Errorf("lists %s", got)
			}
			if got := filledOf(two); got.Source != "upstream" {
				t.Errorf("filled %+v", got)
			}
		})
	}
	ghost := func(x *tier) {
		x.cms.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", x.up.Bump(1)))
	}
	f("not listed again yet", func(x *tier, one *bubble.Proxy) {
		x.up.On(proxytest.WatchList, 1, (*proxytest.Call).Hang) // the list that would mend it
		ghost(x)
		one.AwaitLog("The cache is not what upstream is")
	})
	f("mistrusted", func(x *tier, one *bubble.Proxy) {
		ghost(x)
		one.AwaitLog("relisted=true")
		ghost(x)
		one.AwaitLog("Stopped serving a resource from its cache")
	})
}

// What etcd had before it was restored fills no replica, whether the lane went on or had ended. ResourceVersions have
// passed those of the file by then.
func TestDiskRestored(t *testing.T) {
	f := func(name, notices string, stop func(*bubble.Proxy)) {
		bubble.Run(t, name, func(t *testing.T) {
			x, dir := newTier(t), t.TempDir()
			services := x.up.Add(proxytest.Resource{Version: "v1", Name: "services", Kind: "Service"})
			one := x.replica(nil, keeps(dir), func(o *proxy.Options) { o.Lane.IdleTimeout = 5 * time.Minute })
			one.Watch("/api/v1/services?watch=1&resourceVersion=0")
			x.cms.Put("ns", "a", "1")
			x.cms.Put("ns", "ghost", "1")
			w := one.Watch(bubble.AnyState + "&timeoutSeconds=10")
			w.Await(3)
			time.Sleep(5 * time.Second)
			stop(one)
			services.Restore(60)
			x.cms.Restore(60, "a")
			one.AwaitLog("went back in time", notices)
			x.up.Bump(200)
			one.Stop()
			two := x.replica(nil, keeps(dir))
			if got := anyList(two); strings.Contains(got, "ghost") || !strings.Contains(got, `"name":"a"`) {
				t.Errorf("lists %s", got)
			}
		})
	}
	f("followed", "configmaps", func(*bubble.Proxy) {})
	f("idle", "services", func(p *bubble.Proxy) {
		time.Sleep(7 * time.Minute)
		p.AwaitLog("Stopped idle lane", "configmaps")
	})
}
