package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// manyLabels returns a selector of so many requirements, in at most so many bytes. No other watch
// has it, and objects without labels match it.
func manyLabels(watch, requirements, bytes int) string {
	var terms []string
	for i := 0; i < requirements && bytes > 0; i++ {
		term := fmt.Sprintf("!w%d-l%d", watch, i)
		terms = append(terms, term)
		bytes -= len(term) + 1
	}
	return strings.Join(terms, ",")
}

// TestTenantSelectors: one tenant's watches with selectors that are slow to evaluate are served
// within bounds, and passed through beyond them. All receive what they select, and other tenants'
// watches of the same resource lose nothing.
func TestTenantSelectors(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "selecting", "selecting-too", "beside")
	for _, ns := range []string{"selecting", "selecting-too", "beside"} {
		makeConfigMap(t, direct, ns, "x", "")
	}
	p := privateWatchfan(t, c)
	secure, admin := p.secure(t, c.token(t, "admin")), p.admin(t)
	watch := func(ns, selector string) *recording {
		t.Helper()
		r := secure.watch(t, "/api/v1/namespaces/"+ns+"/configmaps?watch=1&resourceVersion=0&labelSelector="+selector+
			"&fieldSelector=metadata.name!%3Dkube-root-ca.crt")
		if r.status != http.StatusOK {
			t.Fatalf("a watch is answered with %d", r.status)
		}
		return r
	}
	warm(t, []*target{secure}, "/api/v1/namespaces/beside/configmaps")
	served := func() int { return int(admin.metric(t, "watchfan_watchers")) }

	beside := watch("beside", "")
	admin.awaitWatchers(t, 1)
	var all []*recording
	const each = 60
	for i := range 4 { // 54 KB: as many as one user may have are passed through
		all = append(all, watch("selecting", manyLabels(i, 1<<20, 54_000)))
	}
	if r := secure.watch(t, "/api/v1/namespaces/selecting/configmaps?watch=1&labelSelector="+manyLabels(4, 1<<20, 54_000)); r.status != http.StatusTooManyRequests {
		t.Errorf("one more is answered with %d", r.status)
	}
	if n := served(); n != 1 {
		t.Errorf("%d watches with a selector of 54 KB are served from the cache", n-1)
	}
	within := 1
	// The largest selectors that are served, as many as there may be in each namespace.
	for _, ns := range []string{"selecting", "selecting-too"} {
		for i := range each {
			all = append(all, watch(ns, manyLabels(1000+i, 99, 8000)))
		}
		n := served() - within
		if within += n; n < each/4 || n >= each {
			t.Errorf("%s: %d of %d watches with a hundred requirements are served", ns, n, each)
		}
	}
	if costly := int(admin.metric(t, "watchfan_costly_watches_total")); costly != 2*each-within+1 {
		t.Errorf("%d watches are counted as costly, with %d of %d served", costly, within-1, 2*each)
	}
	if held := admin.metric(t, "watchfan_filter_bytes"); held < 100_000 || held > 10*8000*2*each {
		t.Errorf("filters hold %v bytes", held)
	}

	const patches = 20
	patch := func(ns string, i int) {
		direct.patch(t, "/api/v1/namespaces/"+ns+"/configmaps/x", fmt.Sprintf(`{"data":{"k":"%d"}}`, i))
	}
	for i := range patches {
		patch("selecting", i+1)
		patch("selecting-too", i+1)
		patch("beside", i+1)
	}
	for _, r := range append(all, beside) {
		r.wait(t, 1+patches)
		r.cancel()
	}
	steady.Until(t, "end of the watches", func() error {
		if held := admin.metric(t, "watchfan_filter_bytes"); held != 0 {
			return fmt.Errorf("%v bytes of filters are still held", held)
		}
		if served() != 0 {
			return errors.New("watches are still served")
		}
		return nil
	})
}
