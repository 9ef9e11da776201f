package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// uncachable write a ConfigMap that can't be cached.
var uncachable = map[string]func(c *proxytest.Collection) uint64{
	"too large": func(c *proxytest.Collection) uint64 { return c.Put("ns", "big", strings.Repeat("x", 17<<20)) },
	"too deep": func(c *proxytest.Collection) uint64 {
		return c.PutMembers("big", 1, `"x":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000))
	},
	"name that JSON cannot express": func(c *proxytest.Collection) uint64 { return c.Put("ns", "big\ufffd", "1") },
}

// A resource with an object that cannot be cached passes through, without a list each time. The
// proxy is ready nevertheless, and other resources are not affected.
func TestUncachableObject(t *testing.T) {
	t.Parallel()
	for name, put := range uncachable {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watchList %t", name, watchList), func(t *testing.T) {
				t.Parallel()
				up := proxytest.NewServer(t)
				up.SetWatchList(watchList)
				fills := proxytest.WatchList
				if !watchList {
					fills = proxytest.List
				}
				f := startFan(t, up, func(o *proxy.Options) {
					o.Cached.ResidentResources, o.AdminPort = []string{"v1/configmaps"}, proxy.AnyPort
				})
				other := f.watch("%s", foosPath+"?watch=1&resourceVersion=0")
				f.cms.Put("ns", "a", "1")
				clients := []*proxytest.Watcher{f.watch(anyState), f.watch(cmsPath + "?watch=1&resourceVersion=101")}
				clients[0].Await(1)
				f.ready()
				before := f.up.Count(fills)

				// The object arrives on an open watch. The lane lists, finds the object again, and
				// stops.
				put(f.cms)
				for _, w := range clients {
					if err := w.Ended(); err != nil {
						t.Errorf("a client's stream ended with %v after %s", err, w.Strings())
					}
					if got := w.Strings(); len(got) > 2 {
						t.Errorf("a client got %s", got)
					}
				}
				f.awaitLog("level=ERROR", "Stopped lane", "passed through", "resource=v1/configmaps")
				passed := f.up.Count(proxytest.Client)
				for range 3 {
					f.watch(anyState).Close()
				}
				f.passed(passed + 3)
				f.ready()
				if got := f.up.Count(fills); got != before+1 {
					t.Errorf("listed %d times, want once", got-before)
				}
				if got := f.log.with("Stopped lane"); len(got) != 1 || len(got[0]) > 1000 {
					t.Errorf("logged %d lines, the first is %.1000s", len(got), got)
				}
				f.up.Collection(proxytest.Foos).Put("", "foo", "1")
				other.Await(1)
				if !other.Open() {
					t.Error("another resource's stream has ended")
				}
			})
		}
	}
}

// Once the object is gone, the next attempt caches the resource again.
func TestUncachableObjectGone(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), proxy.AvoidFor(300*time.Millisecond))
	f.cms.Put("ns", "big", strings.Repeat("x", 17<<20))
	f.watch(anyState).Await(1) // passed through, because the lane cannot be filled
	f.passed(1)
	f.cms.Put("ns", "big", "small")
	f.until("watch that is served from the cache", func() bool {
		before := f.up.Count(proxytest.Client)
		w := f.watch(anyState)
		w.Await(1)
		w.Close()
		return f.up.Count(proxytest.Client) == before
	})
}

// ready waits until /readyz is ok.
func (f *fan) ready() {
	f.t.Helper()
	f.until("readiness", func() bool {
		code, _, _ := f.askAdmin("/readyz", "")
		return code == http.StatusOK
	})
}

// memoryOf is a proxy with a memory limit of 100 MiB. The test sets the percentage in use.
func memoryOf(t *testing.T, change ...func(*proxy.Options)) (f *fan, percent *atomic.Int64) {
	percent = new(atomic.Int64)
	return startFan(t, proxytest.NewServer(t),
		append(change, proxy.MemoryUsed(func() int64 { return percent.Load() << 20 }),
			func(o *proxy.Options) { o.MemoryLimit = 100 << 20 })...), percent
}

// A list is abandoned if memory becomes full while it is read. A lane that was never filled stops.
// So does a lane that lists again, and its clients' streams end properly.
func TestMemoryFullWhileFilling(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList %t", watchList), func(t *testing.T) {
			f, percent := memoryOf(t)
			f.up.SetWatchList(watchList)
			fills := proxytest.WatchList
			if !watchList {
				fills = proxytest.List
			}
			for i := range 4 {
				f.cms.Put("ns", fmt.Sprint("a", i), strings.Repeat("x", 1<<20))
			}
			fillOnce := func(c *proxytest.Call) {
				percent.Store(92) // before the first look at the memory in use
				c.Serve()
			}
			f.up.On(fills, 1, fillOnce)
			w := f.watch(anyState)
			w.Await(4)
			f.passed(1)
			f.awaitLog("Stopped lane", "memory is full", "retryIn=1m0s")
			if len(f.log.with("msg=Listed")) > 0 {
				t.Error("a lane was filled")
			}
		})
	}
	t.Run("relist", func(t *testing.T) {
		f, percent := memoryOf(t)
		for i := range 4 {
			f.cms.Put("ns", fmt.Sprint("a", i), strings.Repeat("x", 1<<20))
		}
		w := f.watch(anyState)
		w.Await(5)
		f.passed(0)
		percent.Store(92)
		f.up.Reflector().Send("garbage\n")
		f.awaitLog("Stopped lane", "memory is full")
		if err := w.Ended(); err != nil {
			t.Errorf("the stream ended with %v", err)
		}
		if got := f.up.Count(proxytest.WatchList); got != 2 {
			t.Errorf("%d lists, want 2", got)
		}
	})
}

// While memory is spent, new connections are reset, and open ones continue.
func TestMemorySpent(t *testing.T) {
	t.Parallel()
	f, percent := memoryOf(t)
	w := f.watch(anyState)
	w.Await(1)
	connects := func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.insecure, "http://"))
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
		if _, err := c.Write([]byte("GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			return false
		}
		_, err = c.Read(make([]byte, 1))
		return err == nil
	}
	if !connects() {
		t.Fatal("no connection with memory enough")
	}
	percent.Store(92)
	f.awaitLog("memory=full")
	if !connects() {
		t.Error("no connection while memory is full, for the 429")
	}
	percent.Store(96)
	f.awaitLog("memory=spent")
	if connects() {
		t.Error("a connection while memory is spent")
	}
	f.cms.Put("ns", "a", "1")
	w.Await(2)
	percent.Store(50)
	f.awaitLog("memory=enough")
	if !connects() {
		t.Error("no connection with memory enough again")
	}
}

// A resident resource that kube-apiserver does not have keeps /readyz from ok. The page and the log say
// why, and the log says it once.
func TestNoSuchResident(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.AdminPort, o.Cached.ResidentResources = proxy.AnyPort, []string{"podz"}
	})
	f.awaitLog("Waited for resident resource", `kube-apiserver has no resource podz in v1: not found`)
	f.until("reason on /readyz", func() bool {
		code, _, body := f.askAdmin("/readyz", "")
		return code == http.StatusInternalServerError && strings.Contains(body, "[-]resident-resources failed: podz is not synced: "+
			"kube-apiserver has no such resource; see --resident-resources\n")
	})
	time.Sleep(2500 * time.Millisecond) // it is looked for every two seconds
	if lines := f.log.with("Waited for resident resource"); len(lines) != 1 {
		t.Errorf("logged %d times: %s", len(lines), lines)
	}
}

// Writes of a known client whose bodies do not come ask nothing of kube-apiserver. Once they have
// come, each is sent.
func TestBodiesComeFirst(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) *http.Client{"HTTP/1.1": stranger{}.client, "HTTP/2": http2Client} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), both)
			const writes = 20
			var bodies []*io.PipeWriter
			answers := make(chan error, writes)
			client := client(t)
			ask := func(method string, body io.Reader) (*http.Response, error) {
				req, err := http.NewRequestWithContext(t.Context(), method, f.secure+cmsPath, body)
				if err != nil {
					return nil, err
				}
				req.Header.Set("User-Agent", proxytest.ClientAgent)
				req.Header.Set("Authorization", "Bearer valid")
				return client.Do(req)
			}
			resp, err := ask(http.MethodPut, strings.NewReader("{}")) // makes the token known
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			known := f.up.Count(proxytest.Client)
			for range writes {
				r, w := io.Pipe()
				bodies = append(bodies, w)
				go func() {
					resp, err := ask(http.MethodPost, r)
					if err == nil {
						err = resp.Body.Close()
					}
					answers <- err
				}()
			}
			for _, w := range bodies {
				if _, err := io.WriteString(w, `{"kind":`); err != nil { // returns when it has been sent
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			if n := f.up.Count(proxytest.Client) - known; n != 0 {
				t.Errorf("%d writes reached kube-apiserver without their bodies", n)
			}
			for _, w := range bodies {
				_, err := io.WriteString(w, `"ConfigMap"}`)
				if err = errors.Join(err, w.Close()); err != nil {
					t.Error(err)
				}
			}
			for range writes {
				if err := <-answers; err != nil {
					t.Error(err)
				}
			}
			if n := f.up.Count(proxytest.Client) - known; n != writes {
				t.Errorf("%d writes reached kube-apiserver, want %d", n, writes)
			}
		})
	}
}
