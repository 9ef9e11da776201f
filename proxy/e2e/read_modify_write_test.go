package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestReadModifyWrite: 50 clients that each read an object, change it and write it, again and again,
// always read their own last write. None waits for a proof that the cache is current: their writes
// earn their gets (aloneReads in package cached).
func TestReadModifyWrite(t *testing.T) {
	parallel(t)
	const clients, rounds = 50, 20
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	direct, ours, admin := c.direct(t), p.plain(t), p.admin(t)
	p.waitReady(t)
	createNamespaces(t, direct, "rmw")
	const uri = "/api/v1/namespaces/rmw/configmaps"
	for i := range clients {
		direct.create(t, uri, fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"n":"0"}}`, i))
	}
	warm(t, []*target{ours}, uri)

	for _, d := range []*target{direct, ours} {
		passed := admin.metric(t, "watchfan_passthrough_requests_total", `verb="get"`)
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() {
				for n := range rounds {
					if err := readModifyWrite(d, fmt.Sprintf("%s/c%d", uri, i), n); err != nil {
						t.Errorf("%s: %v", d.name, err)
						return
					}
				}
			})
		}
		running.Wait()
		if t.Failed() {
			return
		}
		passed = admin.metric(t, "watchfan_passthrough_requests_total", `verb="get"`) - passed
		// The first gets of all, at once, share a proof or two.
		if least := .8 * clients * (rounds - 1); d == ours && passed < least {
			t.Errorf("%v gets passed through, want at least %v", passed, least)
		}
		for i := range clients {
			direct.patch(t, fmt.Sprintf("%s/c%d", uri, i), `{"data":{"n":"0"}}`)
		}
	}
}

// readModifyWrite counts an object up, which is at n.
func readModifyWrite(d *target, uri string, n int) error {
	resp, err := d.try(http.MethodGet, uri, nil, "")
	if err != nil || resp.status != http.StatusOK {
		return fmt.Errorf("%d %w", resp.status, err)
	}
	var o corev1.ConfigMap
	if err := json.Unmarshal(resp.body, &o); err != nil {
		return err
	}
	if o.Data["n"] != strconv.Itoa(n) {
		return fmt.Errorf("stale: %s is %q, and %d had been written", uri, o.Data["n"], n)
	}
	o.Data["n"] = strconv.Itoa(n + 1)
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	put, err := d.try(http.MethodPut, uri, nil, string(body))
	if err != nil || put.status != http.StatusOK {
		return fmt.Errorf("write: %d %.200s %w", put.status, put.body, err)
	}
	return nil
}
