package fallback

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// crowd is clients' connections.
type crowd struct {
	mu   sync.Mutex
	open int
	away []int // dismissed at a time
}

func (c *crowd) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func (c *crowd) set(open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.away = open, nil
}

func (c *crowd) Dismiss(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := min(most, c.open)
	c.open -= told
	c.away = append(c.away, told)
	return told
}

// gone returns the groups that have been dismissed.
func (c *crowd) gone() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.away), func(n int) bool { return n == 0 })
}

var inService = Options{FallbackFor: "tier/watchfan", FallbackPod: "fallback-0/uid-1/node-a",
	FallbackAddresses: []string{"10.0.0.7", "fd00::7", "fd00::8"}, FallbackWatchRate: 200}

// cluster answers with the slices that it has, and takes others.
type cluster struct {
	proxytest.FakeUpstream[auth.Identity]
	ready   bool // of the other watchfans
	lists   int
	refuses string
	applied map[string]discoveryv1.EndpointSlice
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{applied: make(map[string]discoveryv1.EndpointSlice)}
	c.Answer = func(_ auth.Identity, path string, body []byte) (int, string, error) {
		if strings.HasSuffix(path, "/namespaces/tier/endpointslices") {
			c.lists++
			return http.StatusOK, fmt.Sprintf(`{"items":[{"endpoints":[{"conditions":{"ready":false,"serving":true}}]},`+
				`{"endpoints":[{"conditions":{"ready":%v}}]}]}`, c.ready), nil
		}
		if c.refuses != "" {
			return http.StatusForbidden, `{"message":"` + c.refuses + `"}`, nil
		}
		var s discoveryv1.EndpointSlice
		if err := json.Unmarshal(body, &s); err != nil || !strings.HasSuffix(path, "/namespaces/tier/endpointslices/"+s.Name) {
			t.Errorf("%s is applied to %s: %v", body, path, err)
		}
		c.applied[s.Name] = s
		return http.StatusOK, "{}", nil
	}
	return c
}

func (c *cluster) locked(f func()) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	f()
}

// begin runs a fall-back in a bubble. end ends it.
func begin(t *testing.T, c *cluster, conns *crowd) (f *Fallback, end func()) {
	f = New(&inService, c, conns, metrics.NewSet(), slog.New(slog.DiscardHandler))
	return f, running(t, f)
}

// Clients go home when another watchfan is ready, in groups over a minute, and not before. Those that
// come later follow. Without clients nobody is asked.
func TestHoming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conns := newCluster(t), new(crowd)
		_, end := begin(t, c, conns)
		time.Sleep(time.Hour)
		c.locked(func() {
			if c.lists != 0 {
				t.Errorf("asked %d times without a client", c.lists)
			}
		})
		conns.set(6000)
		time.Sleep(time.Hour)
		if gone := conns.gone(); len(gone) > 0 {
			t.Fatalf("dismissed %v while no other is ready", gone)
		}
		c.locked(func() { c.ready = true })
		time.Sleep(settle + 30*time.Second)
		if gone := conns.gone(); len(gone) < 29 || len(gone) > 31 || gone[0] != 100 {
			t.Errorf("dismissed %v within half a minute", gone)
		}
		c.locked(func() { c.ready = false })
		time.Sleep(2 * lookEvery)
		left := conns.Count()
		time.Sleep(time.Hour)
		if n := conns.Count(); n != left {
			t.Errorf("dismissed %d when the others were away again", left-n)
		}
		c.locked(func() { c.ready = true })
		time.Sleep(2 * time.Minute)
		if n := conns.Count(); n != 0 {
			t.Errorf("%d clients are left", n)
		}
		conns.set(70)
		time.Sleep(settle + 5*lookEvery)
		if gone := conns.gone(); !slices.Equal(gone, []int{50, 20}) {
			t.Errorf("dismissed %v of those that come later", gone)
		}
		conns.set(5)
		end()
		if n := conns.Count(); n != 0 {
			t.Errorf("%d clients are not told that the fall-back stops", n)
		}
	})
}

// A replica is an endpoint that is serving and terminating, in a slice for each family, and none when it
// stops. It is not ready before.
func TestSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.refuses = "no"
		f, end := begin(t, c, new(crowd))
		synctest.Wait()
		if err := f.OK(); err == nil || !strings.Contains(err.Error(), "tier/watchfan") {
			t.Errorf("ready without a slice: %v", err)
		}
		c.locked(func() { c.refuses = "" })
		time.Sleep(applyAgain)
		synctest.Wait()
		if err := f.OK(); err != nil {
			t.Error(err)
		}
		c.locked(func() {
			if len(c.applied) != 2 {
				t.Errorf("%d slices", len(c.applied))
			}
			for family, address := range map[discoveryv1.AddressType]string{"IPv4": "10.0.0.7", "IPv6": "fd00::7"} {
				s := c.applied["fallback-0-"+strings.ToLower(string(family))]
				got, _ := json.Marshal(s.Endpoints)
				want := fmt.Sprintf(`[{"addresses":[%q],"conditions":{"ready":false,"serving":true,"terminating":true},`+
					`"targetRef":{"kind":"Pod","namespace":"tier","name":"fallback-0","uid":"uid-1"},"nodeName":"node-a"}]`, address)
				owner := s.OwnerReferences
				if string(got) != want || s.AddressType != family || s.Labels[discoveryv1.LabelServiceName] != "watchfan" ||
					s.Labels[discoveryv1.LabelManagedBy] != manager || len(owner) != 1 || owner[0].UID != "uid-1" || *s.Ports[0].Port != 8443 {
					t.Errorf("%s: got %+v\n%s, want\n%s", family, s, got, want)
				}
			}
			clear(c.applied) // somebody has deleted them
		})
		time.Sleep(applyEvery)
		synctest.Wait()
		c.locked(func() {
			if len(c.applied) != 2 {
				t.Errorf("%d slices a minute after their deletion", len(c.applied))
			}
		})
		end()
		for name, s := range c.applied {
			if len(s.Endpoints) > 0 {
				t.Errorf("%s has an endpoint that has stopped", name)
			}
		}
	})
}

// Watches start at the rate, and those that would wait too long are told to try again. Another source's watch does
// not wait for them.
func TestAwaitStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(&inService, newCluster(t), new(crowd), metrics.NewSet(), slog.New(slog.DiscardHandler))
		began := time.Now()
		var starts, refused int
		var last time.Duration
		var mu sync.Mutex
		var watches sync.WaitGroup
		for range 5000 {
			watches.Go(func() {
				st := f.AwaitStart(t.Context(), account.Source{Name: "many"})
				mu.Lock()
				defer mu.Unlock()
				if st == nil {
					starts, last = starts+1, time.Since(began)
				} else if refused++; st.Code != http.StatusTooManyRequests || st.Details.RetryAfterSeconds == 0 {
					t.Errorf("got %v", st)
				}
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			if st := f.AwaitStart(t.Context(), account.Source{Name: "few"}); st != nil {
				t.Errorf("got %v beside many", st)
			}
		}
		if waited := time.Since(began) - time.Second; waited > 200*time.Millisecond {
			t.Errorf("ten watches of another source have waited for %s", waited)
		}
		watches.Wait()
		starts += 10
		if starts < 2000 || starts > 2021 || starts+refused != 5010 || last > mostWait {
			t.Errorf("%d started within %s, %d refused", starts, last, refused)
		}
	})
}

// Wrong options are named.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		port   int
		want   string
	}{
		{func(*Options) {}, 8443, ""},
		{func(o *Options) { o.FallbackFor = "http://127.0.0.1:8002/readyz"; o.FallbackPod = "" }, 8443, ""},
		{func(o *Options) { o.FallbackFor = "http://10.0.0.1:8002/readyz" }, 8443, `--fallback-for="http://10.0.0.1:8002/readyz" is neither`},
		{func(o *Options) { o.FallbackFor = "watchfan" }, 8443, `--fallback-for="watchfan" is neither`},
		{func(o *Options) { o.FallbackPod = "a" }, 8443, `--fallback-pod="a" is no pod`},
		{func(o *Options) { o.FallbackPod = "" }, 8443, "--fallback-for is a Service, so it needs --fallback-pod"},
		{func(o *Options) { o.FallbackAddresses = []string{"a"} }, 8443, "is no IP address"},
		{func(*Options) {}, -1, ""},
		{func(*Options) {}, 0, "--fallback-for needs a --secure-port"},
		{func(o *Options) { o.FallbackFor = "http://127.0.0.1:8003/readyz" }, 8443,
			"--fallback-for=http://127.0.0.1:8003/readyz leads to the fall-back itself"},
		{func(o *Options) { o.FallbackFor = "http://127.0.0.2:8003/readyz" }, 8443, ""},
	} {
		o := inService
		table := &option.Table{Titles: []string{"Fallback"}}
		o.AddTo(table)
		c.change(&o)
		got := ""
		if err := table.Check(); err != nil {
			got = err.Error()
		} else if err := o.Check(table, c.port, "127.0.0.1:8003", false); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
