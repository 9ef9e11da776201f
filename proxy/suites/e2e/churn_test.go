package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// churn writes ConfigMaps straight to kube-apiserver: it creates, relabels, updates and deletes
// them.
type churn struct {
	target     *target
	namespaces []string
	rate       int    // writes per second at most
	names      int    // per namespace
	seed       uint64 // of steady.Rand
	tolerant   bool   // errors are expected, because kube-apiserver restarts

	last   atomic.Uint64 // resourceVersion of the last acknowledged write
	writes atomic.Int64
	errors atomic.Int64
	kinds  [4]atomic.Int64 // creates, deletes, relabels, updates
}

// run writes until stop is closed, and reports what went wrong.
func (c *churn) run(stop <-chan struct{}) error {
	const workers = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(c.seed, uint64(w)))
			exists := make(map[string]bool)
			for pace(stop, workers*time.Second/time.Duration(c.rate)) {
				if err := c.write(rng, exists, w, workers); err != nil {
					c.errors.Add(1)
					if !c.tolerant {
						mu.Lock()
						failed = errors.Join(failed, err)
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// start begins to write. The returned function ends it, and fails the test unless all writes succeeded.
func (c *churn) start(t testing.TB) (stop func()) {
	stopc, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- c.run(stopc) }()
	return sync.OnceFunc(func() {
		close(stopc)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// succeeded is the number of writes that succeeded.
func (c *churn) succeeded() int { return int(c.writes.Load() - c.errors.Load()) }

// await waits until n writes have succeeded.
func (c *churn) await(t testing.TB, n int) {
	t.Helper()
	reach(t, "write", n, c.succeeded)
}

// awaitMore waits until n more writes have succeeded.
func (c *churn) awaitMore(t testing.TB, n int) { t.Helper(); c.await(t, c.succeeded()+n) }

// write makes one write to an object that only this worker writes.
func (c *churn) write(rng *rand.Rand, exists map[string]bool, worker, workers int) error {
	n := rng.IntN(c.names)
	n -= n % workers
	name := fmt.Sprintf("cm-%d", (n+worker)%max(c.names, workers))
	uri := "/api/v1/namespaces/" + c.namespaces[rng.IntN(len(c.namespaces))] + "/configmaps"
	one := uri + "/" + name
	var rv uint64
	var err error
	switch p := rng.IntN(100); {
	case !exists[one]:
		rv, err = c.target.write(http.MethodPost, uri, "application/json", c.body(rng, name))
		exists[one] = err == nil || strings.Contains(err.Error(), "AlreadyExists")
		c.kinds[0].Add(1)
	case p < 15:
		_, err = c.target.write(http.MethodDelete, one, "application/json", "")
		if err == nil || strings.Contains(err.Error(), "NotFound") {
			delete(exists, one)
		}
		c.kinds[1].Add(1)
	case p < 55:
		rv, err = c.target.write(http.MethodPatch, one, "application/merge-patch+json",
			`{"metadata":{"labels":`+drawLabels(rng, "null")+`}}`)
		c.kinds[2].Add(1)
	default:
		rv, err = c.target.write(http.MethodPatch, one, "application/merge-patch+json",
			fmt.Sprintf(`{"data":{"n":"%d <&>\u2028é"}}`, rng.Uint64()))
		c.kinds[3].Add(1)
	}
	if err != nil && strings.Contains(err.Error(), "NotFound") {
		delete(exists, one)
	}
	c.writes.Add(1)
	for old := c.last.Load(); rv > old && !c.last.CompareAndSwap(old, rv); old = c.last.Load() {
	}
	return err
}

// sweep creates objects anew, so that each of the selections gets an event at the end of the churn. It
// returns the last resourceVersion.
func (c *churn) sweep(t testing.TB) (last uint64) {
	t.Helper()
	for _, ns := range c.namespaces {
		for i, labels := range []string{`"app":"a","tier":"x","num":"3"`, `"app":"b","tier":"x","num":"7"`,
			`"app":"c","tier":"y","num":"12"`, `"app":"b"`, ``, `"tier":"y"`, `"app":"c","tier":"x"`} {
			name := fmt.Sprintf("cm-%d", i)
			c.target.do(t, http.MethodDelete, "/api/v1/namespaces/"+ns+"/configmaps/"+name, nil, "")
			last = makeConfigMap(t, c.target, ns, name, labels)
		}
	}
	return last
}

// choices are the values of each label; "" means that the label is absent.
var choices = map[string][]string{"app": {"a", "b", "c", ""}, "tier": {"x", "y", ""}, "num": {"3", "7", "12", ""}}

// drawLabels returns labels in JSON. Those that are absent are left out, or have a value: null removes them.
func drawLabels(rng *rand.Rand, absent string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(choices)) {
		if v := choices[k][rng.IntN(len(choices[k]))]; v != "" {
			parts = append(parts, fmt.Sprintf("%q:%q", k, v))
		} else if absent != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", k, absent))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (c *churn) body(rng *rand.Rand, name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":%s},`+
		`"data":{"a":"<&>","n":"%d","pad":%q}}`,
		name, drawLabels(rng, ""), rng.Uint64(), strings.Repeat("x", rng.IntN(600)))
}

// check fails the test unless every kind of write happened.
func (c *churn) check(t testing.TB) {
	t.Helper()
	for i := range c.kinds {
		if n := c.kinds[i].Load(); n < 5 {
			t.Errorf("churn was not of every kind: %d of kind %d, %d writes, %d errors", n, i, c.writes.Load(), c.errors.Load())
		}
	}
}

// reach waits until a count has reached n. Its patience is for each step.
func reach(t testing.TB, what string, n int, count func() int) {
	t.Helper()
	for before := count(); before < n; before = count() {
		steady.Until(t, fmt.Sprintf("%s %d of %d", what, before+1, n), func() error {
			if count() == before {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// pace waits between two writes or reads of a loop, which would otherwise take processors from others. It
// decides nothing. It returns false when stop is closed.
func pace(stop <-chan struct{}, pause time.Duration) (goOn bool) {
	select {
	case <-stop:
		return false
	case <-time.After(pause): //testlint:allow timer it only leaves processors to others
		return true
	}
}
