//go:build nightly

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestMemoryLimit: whatever clients ask for does not end a process with little memory. It gives up
// what the client that holds most keeps, or refuses requests, and serves again afterwards. An open
// watch misses nothing.
func TestMemoryLimit(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "big", "small")
	for i := range 30 {
		direct.create(t, "/api/v1/namespaces/big/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"v":"%s"}}`, i, strings.Repeat("x", 900<<10)))
	}
	const limit = 128 << 20
	p := plainWatchfan(t, c, "--memory-limit=128Mi")
	own, admin := p.plain(t), p.admin(t)
	if got := admin.metric(t, "watchfan_memory_limit_bytes"); got != limit {
		t.Errorf("the limit is %v", got)
	}
	const accounts = "/api/v1/namespaces/small/serviceaccounts"
	w := p.secure(t, c.token(t, "admin")).watch(t, accounts+"?watch=1&resourceVersion=0") // of another user
	writes := 0
	write := func() {
		writes++
		direct.create(t, accounts, fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, writes))
	}

	// Two lanes hold the collection of 27 MB, and their histories grow with each of its changes.
	const everything = "/api/v1/configmaps?watch=1&resourceVersion=0"
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	open := func(form string) int {
		resp, err := own.open(ctx, http.MethodGet, everything, http.Header{"Accept": {form}}, "")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body) // until its client leaves
		}()
		return resp.StatusCode
	}
	for _, form := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		if status := open(form); status != http.StatusOK {
			t.Fatalf("a watch is answered %d", status)
		}
	}
	changes, used := 0, 0.0
	steady.Until(t, "refusal and no cut", func() error {
		if used = admin.metric(t, "watchfan_memory_used_bytes"); used < 0.9*limit {
			direct.patch(t, fmt.Sprintf("/api/v1/namespaces/big/configmaps/big-%d", changes%30),
				fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, changes))
			changes++
		}
		if admin.metric(t, "watchfan_account_cut_bytes_total") > 0 {
			return nil
		}
		resp, err := own.try(http.MethodGet, "/api/v1/serviceaccounts?resourceVersion=0", nil, "")
		if err == nil && resp.status != http.StatusTooManyRequests {
			err = fmt.Errorf("answered %d", resp.status)
		}
		if err != nil { // also a reset, if memory is used up
			return fmt.Errorf("%w with %v bytes in use after %d changes", err, used, changes)
		}
		return nil
	})
	before := len(w.all())
	write()
	w.wait(t, before+1)

	// When the clients leave, their lanes stop.
	leave()
	steady.Until(t, "memory for a list", func() error {
		resp, err := own.try(http.MethodGet, "/api/v1/serviceaccounts?resourceVersion=0", nil, "")
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("answered %d with %v bytes in use", resp.status,
				admin.metric(t, "watchfan_memory_used_bytes"))
		}
		return err
	})
	if admin.metric(t, "watchfan_memory_sheds_total")+admin.metric(t, "watchfan_account_cut_bytes_total") == 0 {
		t.Error("nothing was given up")
	}
	write()
	steady.Until(t, "all events of the watch that was there", func() error {
		added := 0
		for _, ev := range w.all() {
			if ev.typ == "ADDED" && strings.HasPrefix(ev.key, "small/a") {
				added++
			}
		}
		if added != writes || !w.open() {
			return fmt.Errorf("%d of %d", added, writes)
		}
		return nil
	})
	t.Logf("%v bytes in use at the refusal, after %d changes; %v afterwards", used, changes,
		admin.metric(t, "watchfan_memory_used_bytes"))
}
