package diagnose

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// Every query that is accepted has a limit and an order. Errors are short.
func FuzzWatchersQuery(f *testing.F) {
	f.Add("format=json&limit=10&sort=lag&minLagBytes=1Mi&minAge=1m&state=Live&reason=UpToDate")
	f.Add("limit=-1")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := parseWatchersQuery(&http.Request{URL: &url.URL{Path: WatchersPath, RawQuery: query}}, false)
		if err == nil && (q.limit < 1 || q.limit > mostShown || !slices.Contains(watcherSorts, q.sort)) {
			t.Errorf("%q: %+v", query, q)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%q: an error of %d bytes", query, len(err.Error()))
		}
	})
}
