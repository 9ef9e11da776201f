package cached

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A list of one name is not divided into pages, so it has no continue token. Elsewhere the limit
// counts, except for resourceVersion 0.
func TestListLimit(t *testing.T) {
	f := func(line string, namespaced bool, want int64) {
		t.Helper()
		r := readOf(t, emptyLane(t), line)
		r.info.Namespaced = namespaced
		if got := r.listKey().limit; got != want {
			t.Errorf("%s: limit %d, want %d", line, got, want)
		}
	}
	const nodes, pods, podsOfOne, name = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/ns/pods", "&fieldSelector=metadata.name%3Da"
	f(nodes+"?limit=1", false, 1)
	f(nodes+"?limit=1"+name, false, 0)
	f(nodes+"?limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan"+name, false, 0)
	f(pods+"?limit=1"+name, true, 1)
	f(pods+"?limit=1&resourceVersion=0", true, 0)
	f(podsOfOne+"?limit=1", true, 1)
	f(podsOfOne+"?limit=1"+name, true, 0)
}

// A list that gets no seat in time is refused, with 429. A get needs no seat.
func TestListWithoutSeat(t *testing.T) {
	l := emptyLane(t)
	synctest.Test(t, func(t *testing.T) {
		c := &Reads{ctx: t.Context(), Config: Config{Lane: &lane.Options{FreshnessTimeout: time.Second}}}
		const seats = 2
		c.Fairness = fairness.New(t.Context(), seats, fairness.Purpose{Message: "no seat"})
		for i := range seats {
			c.Fairness.Seat(fairness.Token(string(rune('a'+i))), time.Minute, nil, nil).Begin()
		}
		serve := func(line string) (served bool, code int32) {
			o := c.serveFrom(&exchange.Exchange{Conn: proxytest.Conn{}}, readOf(t, l, line))
			if st := o.Refusal(); st != nil {
				code = st.Code
			}
			return o.Answered(), code
		}
		for line, want := range map[string]time.Duration{
			"/api/v1/pods?resourceVersion=0":             fairness.MaxSeatWait,
			"/api/v1/pods?resourceVersion=0&timeout=20s": fairness.MaxSeatWait,
			"/api/v1/pods?resourceVersion=0&timeout=2s":  2 * time.Second,
		} {
			began := time.Now()
			served, code := serve(line)
			if took := time.Since(began); served || code != http.StatusTooManyRequests || took != want {
				t.Errorf("%s: served %t, %d after %s, want 429 after %s", line, served, code, took, want)
			}
		}
		if served, code := serve("/api/v1/namespaces/ns/pods/none?resourceVersion=0"); !served {
			t.Errorf("a get is refused with %d", code)
		}
	})
}
