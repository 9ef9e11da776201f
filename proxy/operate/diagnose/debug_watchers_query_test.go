package diagnose

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/watchfan/watchfan/proxy/store/watchers"
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

// A number of bytes never takes long to read: its exponent has two digits at most.
func TestWatchersQueryBytes(t *testing.T) {
	for value, want := range map[string]uint64{"0": 0, "1Mi": 1 << 20, "1e3": 1000, "2E": 2e18} {
		var q watchersQuery
		if err := q.setMinLagBytes(value); err != nil || q.minLagBytes != want {
			t.Errorf("%s: got %d, %v", value, q.minLagBytes, err)
		}
	}
	for _, value := range []string{"", "-1", "1e99", "1e-10000000", "1E+10000000", "0e2147483647"} {
		var q watchersQuery
		if q.setMinLagBytes(value) == nil {
			t.Errorf("%s is accepted", value)
		}
	}
}

// A watch is selected by its resource's name, or by that with its group and version.
func TestQueryResource(t *testing.T) {
	for resource, want := range map[string]bool{"deployments": true, "apps/v1/deployments": true, "v1/deployments": false} {
		if got := (&watchersQuery{resource: resource}).matches(Asker{Resource: "apps/v1/deployments"}, 0); got != want {
			t.Errorf("%s: %t", resource, got)
		}
	}
}

// Only watches that should have more by now are slow, and each cause of that is explained.
func TestSlowCauses(t *testing.T) {
	got := slowCauses(map[watchers.Cause]int{watchers.UpToDate: 5, watchers.ClientNotReading: 1, watchers.FilteredOut: 2, watchers.UpstreamBroken: 3, watchers.WatchfanSlow: 0})
	want := []SlowCause{{watchers.ClientNotReading, watchers.ClientNotReading.Meaning(), 1}, {watchers.UpstreamBroken, watchers.UpstreamBroken.Meaning(), 3}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := slowCauses(nil); got == nil || len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
