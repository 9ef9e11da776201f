package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestWatchLimits: a user with as many watches as it may have is told to come again, whether the
// next watch would be served or passed through. It may come when one has ended.
func TestWatchLimits(t *testing.T) {
	needsPlain(t)
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--max-watches-per-user=2", "--max-watches=3")
	own, admin := p.plain(t), p.secure(t, c.token(t, "admin"))
	createNamespaces(t, c.direct(t), "watch-limits")
	const served = "/api/v1/namespaces/watch-limits/configmaps?watch=1&resourceVersion=0"
	table := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}
	watch := func(d *target, header http.Header) (end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := d.open(ctx, http.MethodGet, served, header, "")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s answered %s", d.name, resp.Status)
		}
		return func() { cancel(); resp.Body.Close() }
	}
	refused := func(d *target, message string) {
		t.Helper()
		resp := d.get(t, served)
		after, err := strconv.Atoi(resp.header.Get("Retry-After"))
		if resp.status != http.StatusTooManyRequests || err != nil || after < 5 || after > 15 ||
			!strings.Contains(string(resp.body), message) ||
			!strings.Contains(string(resp.body), `"reason":"TooManyRequests"`) {
			t.Errorf("%s: got %d, Retry-After %q, %s; want 429, 5 to 15 and %q", d.name, resp.status,
				resp.header.Get("Retry-After"), resp.body, message)
		}
	}
	end := watch(own, nil)
	defer watch(own, table)()
	refused(own, "2 watches of one user")
	defer watch(admin, nil)()
	refused(admin, "3 watches at a time")
	if got := own.get(t, "/api/v1/configmaps"); got.status != http.StatusOK {
		t.Errorf("a list is answered %d", got.status)
	}
	end()
	steady.Until(t, "watch where another has ended", func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := own.open(ctx, http.MethodGet, served, nil, "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if got := p.admin(t).metric(t, "watchfan_rejected_requests_total", `reason="max_watches"`); got < 1 {
		t.Errorf("%v refusals are counted", got)
	}
}

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

// TestRefusedInformer: an informer that is refused repeats its request at the time that it was
// told, and syncs then. It neither falls back to a list nor gives up.
func TestRefusedInformer(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "refused")
	makeConfigMap(t, direct, "refused", "x", "")
	p := privateWatchfan(t, c, "--max-watches=2")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 2 {
		resp, err := p.plain(t).open(ctx, http.MethodGet, "/api/v1/namespaces/refused/configmaps?watch=1&resourceVersion=0", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	s := startInformers(t, "informer", &rest.Config{Host: "http://" + p.ports.Insecure,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	for _, resource := range []string{"configmaps", "pods"} {
		steady.Until(t, "refusal of "+resource, func() error {
			if _, _, all := s.log.reads(resource); len(all) == 0 {
				return errors.New("nothing has been asked")
			}
			return nil
		})
	}
	end()
	steady.Until(t, "sync", func() error {
		if !s.configMaps.HasSynced() || !s.pods.HasSynced() {
			return errors.New("not synced")
		}
		return nil
	})
	if _, ok, _ := s.configMaps.GetStore().GetByKey("refused/x"); !ok {
		t.Error("the informer does not hold what was there before")
	}
	for _, resource := range []string{"configmaps", "pods"} {
		_, _, all := s.log.reads(resource)
		first, refused := strings.CutPrefix(all[0], "429 ")
		granted := slices.IndexFunc(all, func(request string) bool { return request != all[0] })
		if !refused || granted < 0 || all[granted] != "200 "+first {
			t.Errorf("%s: asked %q, want the same until it is granted", resource, all)
		}
	}
}
