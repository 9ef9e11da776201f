package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// joiner is a client that begins a watch, each time on a new connection, and has no goroutine.
type joiner struct {
	address string // of the insecure port
	path    string
	conn    net.Conn
	refused int // answers of 429
}

// join sends the request and does not wait for the answer.
func (j *joiner) join(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", j.address)
	if err != nil {
		t.Fatal(err)
	}
	j.conn = conn
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", j.path, j.address, proxytest.ClientAgent)
}

// live reads the answer up to the end of the initial events. After a 429 it joins again when the
// answer says so.
func (j *joiner) live(t *testing.T) {
	t.Helper()
	for {
		in := bufio.NewReader(j.conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests {
			j.refused++
			j.again(t, resp)
			continue
		}
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("got %s", resp.Status)
		}
		for events := proxytest.NewEventReader(resp.Body, false); ; {
			line, err := events.Next()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(line), "initial-events-end") {
				return
			}
		}
	}
}

// again does what a 429 says.
func (j *joiner) again(t *testing.T, resp *http.Response) {
	t.Helper()
	body, _ := io.ReadAll(resp.Body)
	j.conn.Close()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || !strings.Contains(string(body), `"reason":"TooManyRequests"`) {
		t.Fatalf("429 with Retry-After %q and %s", resp.Header.Get("Retry-After"), body)
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	j.join(t)
}

// herd is clients that join at the same time, each with a label selector of its own. Every other
// one asks for the current state.
func (f *fan) herd(n int) []*joiner {
	f.t.Helper()
	all := make([]*joiner, n)
	for i := range all {
		path := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=node%%3Dn%d",
			cmsPath, i)
		if i%2 == 0 {
			path += "&resourceVersion=0"
		}
		all[i] = &joiner{address: strings.TrimPrefix(f.insecure, "http://"), path: path}
		all[i].join(f.t)
	}
	return all
}

// allLive reads until all are live. It returns how many were refused at first.
func allLive(t *testing.T, herd []*joiner) (refused int) {
	t.Helper()
	var wg sync.WaitGroup
	readers := min(len(herd), 300)
	for i := range readers {
		wg.Go(func() {
			for k := i; k < len(herd); k += readers {
				herd[k].live(t)
			}
		})
	}
	wg.Wait()
	for _, j := range herd {
		if j.refused > 0 {
			refused++
		}
	}
	return refused
}

// fillSlowly gives the collection n objects that a list brings one after another, in d.
func (f *fan) fillSlowly(n int, d time.Duration) {
	for i := range n {
		f.cms.Put("ns", fmt.Sprintf("o%d", i), "1", "node", fmt.Sprintf("n%d", i))
	}
	f.up.SetDelay(func(k proxytest.Kind) time.Duration {
		if k == proxytest.WatchList {
			return d / time.Duration(n+1)
		}
		return 0
	})
}

// wantShared fails the test unless upstream has seen so many lists of lanes, and at most
// MostThrough requests of clients.
func (f *fan) wantShared(lists int) {
	f.t.Helper()
	if n := f.up.Count(proxytest.WatchList); n != lists {
		f.t.Errorf("%d lists, want %d", n, lists)
	}
	if n := f.up.Count(proxytest.Client); n > proxy.MostThrough {
		f.t.Errorf("%d requests were passed through, want at most %d", n, proxy.MostThrough)
	}
}

// memory returns the bytes of the heap and of stacks in use.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A herd that comes to a replica that has just started waits for one list. Package lane has larger
// ones, and slower lists, in virtual time.
func TestHerd(t *testing.T) {
	t.Parallel()
	const clients, takes = 100, 2 * time.Second
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, takes)
	if refused := allLive(t, f.herd(clients)); refused > 0 {
		t.Errorf("%d were refused", refused)
	}
	f.wantShared(1)
}

// A watch that waits for its lane takes little memory.
func TestHerdMemory(t *testing.T) {
	const clients, most = 1000, 20 << 10
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, time.Minute)
	f.herd(1)
	f.up.AwaitCount(proxytest.WatchList, 1)
	before := memory()
	f.herd(clients)
	waiting := func() bool { // a handful pass through
		stacks := make([]byte, 64<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "lane.(*filling).wait(") > clients-10
	}
	f.until("waiting herd", waiting)
	each := (int64(memory()) - int64(before)) / clients
	t.Logf("%d bytes for each, both ends of the connection included", each)
	if each > most {
		t.Errorf("a watch that waits takes %d bytes, want at most %d", each, most)
	}
}

// The clients of a herd have tokens of their own. Each is reviewed once, however long the list
// takes.
func TestHerdReviews(t *testing.T) {
	t.Parallel()
	const clients = 100
	f := startFan(t, proxytest.NewServer(t), both)
	f.fillSlowly(100, 13*time.Second) // longer than a review's answer is remembered
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			open := proxytest.TryOpen
			if i%2 == 0 {
				open = proxytest.TryOpenHTTP2
			}
			w, err := open(t, f.secure+anyState, "Authorization", fmt.Sprintf("Bearer token-%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			if w.Code != http.StatusOK {
				t.Errorf("got %d", w.Code)
				return
			}
			w.Await(101)
		})
	}
	all.Wait()
	f.wantShared(1)
	if n := f.up.Count(proxytest.Review); n != clients {
		t.Errorf("%d reviews, want %d", n, clients)
	}
}

// A list that breaks off in the middle is repeated, and the herd waits.
func TestHerdBrokenList(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, 8*time.Second)
	var broken sync.WaitGroup
	broken.Go(func() {
		f.up.AwaitCount(proxytest.WatchList, 1)
		time.Sleep(4 * time.Second)
		f.up.Reflector().Abort()
	})
	herd := f.herd(300)
	broken.Wait()
	if refused := allLive(t, herd); refused > 0 {
		t.Errorf("%d were refused", refused)
	}
	f.wantShared(2)
}

// A list that stalls refuses the herd, which comes back and is served when the list goes on.
func TestHerdStalledList(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, 5*time.Second)
	var lines atomic.Int32
	goOn := make(chan struct{})
	f.up.SetDelay(func(k proxytest.Kind) time.Duration {
		if k == proxytest.WatchList && lines.Add(1) == 50 {
			<-goOn
		}
		return 0
	})
	herd := f.herd(300)
	time.AfterFunc(20*time.Second, func() { close(goOn) })
	refused := allLive(t, herd)
	if refused < len(herd)-2*proxy.MostThrough {
		t.Errorf("%d of %d were refused", refused, len(herd))
	}
	f.wantShared(1)
}

// A watch's timeout includes its wait.
func TestHerdTimeout(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, 3*time.Second) // a watch of 15 s passes through after 6.75 s
	began := time.Now()
	w := f.watch(anyState + "&timeoutSeconds=15")
	waited := time.Since(began)
	if err := w.Ended(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 14*time.Second || took > 15*time.Second+waited/2 {
		t.Errorf("it waited %s and ended after %s", waited, took)
	}
	f.passed(0)
}

// Clients that give up while they wait leave nothing behind, and reach kube-apiserver no more.
func TestHerdGivesUp(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.fillSlowly(100, 15*time.Second)
	herd := f.herd(300)
	f.until("waiting herd", func() bool { return f.server.Admitted() == len(herd) })
	passed := f.up.Count(proxytest.Client)
	for _, j := range herd {
		j.conn.Close()
	}
	f.until("end of the waits", func() bool { return f.server.Admitted() == 0 })
	time.Sleep(12 * time.Second) // the first would have passed through
	f.passed(passed)
	last := f.herd(1)
	allLive(t, last)
	f.wantShared(1)
}

// mostAtOnce answers passed-through requests slowly, and returns how many there have been at a time
// at most.
func (f *fan) mostAtOnce() *atomic.Int32 {
	var now, most atomic.Int32
	f.up.On(proxytest.Client, 1<<20, func(c *proxytest.Call) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		c.Serve()
		now.Add(-1)
	})
	return &most
}

// Reads that have waited in vain take turns at kube-apiserver, whatever they have waited for.
func TestHerdInVain(t *testing.T) {
	const clients = 100
	for name, c := range map[string]struct {
		path    string
		prepare func(f *fan)
	}{
		"for a proof": {cmsPath, func(f *fan) {
			f.cms.Put("ns", "a", large)
			f.watch(anyState).Await(2)
			f.up.On(proxytest.Probe, 1<<20, (*proxytest.Call).Hang)
		}},
		"for a lane": {cmsPath + "?resourceVersion=0", func(f *fan) {
			f.up.On(proxytest.WatchList, 1<<20, func(c *proxytest.Call) {
				time.Sleep(2 * time.Second)
				c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
			})
		}},
		"for discovery": {cmsPath + "?resourceVersion=0", func(f *fan) {
			f.up.On(proxytest.Other, 1<<20, (*proxytest.Call).Hang)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), impatient, proxy.SpareLists, proxy.NoneAlone)
			c.prepare(f)
			most := f.mostAtOnce()
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					if resp, _ := f.get(c.path); resp.StatusCode != http.StatusOK {
						t.Errorf("got %s", resp.Status)
					}
				})
			}
			all.Wait()
			f.passed(clients)
			if m := most.Load(); m > proxy.MostThrough {
				t.Errorf("%d requests were passed through at a time, want at most %d", m, proxy.MostThrough)
			}
		})
	}
}
