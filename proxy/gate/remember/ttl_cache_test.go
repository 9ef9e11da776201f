package remember

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// A late answer does not replace the answer to a later question.
func TestAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known TTLCache[int, string]
		q, first := 1, time.Now()
		time.Sleep(time.Second)
		known.Put(q, "no", time.Now(), time.Minute)
		known.Put(q, "yes", first, time.Minute)
		if v, ok := known.Get(q); !ok || v != "no" {
			t.Errorf("%q, %v", v, ok)
		}
		time.Sleep(time.Minute)
		if _, ok := known.Get(q); ok {
			t.Error("still good")
		}
	})
}

// An answer expires by the clock that goes on while the machine is suspended, and by the one that is never set
// back.
func TestSuspension(t *testing.T) {
	now := time.Now()
	wall := now.Round(0)
	a := &answer[int, string]{expires: now.Add(10 * time.Second)}
	for _, c := range []struct {
		now, wall time.Time
		over      bool
	}{
		{now, wall, false},
		{now, wall.Add(time.Hour), true},
		{now, wall.Add(-time.Hour), false},
		{now.Add(time.Minute), wall.Add(-time.Hour), true},
	} {
		if a.over(c.now, c.wall) != c.over {
			t.Errorf("monotonic %s, wall %s later: not %v", c.now.Sub(now), c.wall.Sub(wall), c.over)
		}
	}
}

// A source that fills the cache makes room among its own answers, and others' stay.
func TestShareOfACache(t *testing.T) {
	c := TTLCache[string, int]{Most: 80}
	put := func(owner string, n int) string {
		q := fmt.Sprint(owner, n)
		c.PutFor(account.Source{Name: owner}, q, n, time.Now(), time.Hour)
		return q
	}
	var kept []string
	for i := range 40 {
		kept = append(kept, put(fmt.Sprint(i%8), i))
	}
	for i := range 1000 {
		put("x", i)
	}
	for _, q := range kept {
		if _, ok := c.Get(q); !ok {
			t.Fatal("an answer of another source is forgotten")
		}
	}
	if c.Len() != 80 || c.owned[account.Source{Name: "x"}].answers != 40 {
		t.Errorf("%d answers, %v", c.Len(), c.owned)
	}
}

// A source whose answers are long makes room among them, however few they are.
func TestBytesOfASource(t *testing.T) {
	c := TTLCache[string, string]{MostBytes: 1000, Size: func(s string) int { return len(s) }}
	put := func(owner string, n int) {
		c.PutFor(account.Source{Name: owner}, fmt.Sprint(owner, n), strings.Repeat("x", 90), time.Now(), time.Hour)
	}
	for i := range 5 {
		put("ann", i)
	}
	for i := range 100 {
		put("eve", i)
	}
	if ann := c.owned[account.Source{Name: "ann"}]; ann != (owned{5, 450}) || c.Len() != 11 {
		t.Errorf("%d answers, of ann %v", c.Len(), ann)
	}
}

// Answers are bounded by their bytes, too.
func TestBytesOfACache(t *testing.T) {
	c := TTLCache[int, string]{MostBytes: 1000, Size: func(s string) int { return len(s) }}
	for i := range 100 {
		c.Put(i, strings.Repeat("x", 90), time.Now(), time.Hour)
	}
	if c.Len() != 11 || c.bytes != 990 {
		t.Errorf("%d answers of %d bytes", c.Len(), c.bytes)
	}
	c.Put(200, strings.Repeat("x", 5000), time.Now(), time.Hour)
	if _, ok := c.Get(200); !ok || c.Len() != 1 {
		t.Error("a long answer is not kept alone")
	}
}

// What is cleared is gone at once, and its calls are not made.
func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := TTLCache[int, string]{MostBytes: 100, Size: func(s string) int { return len(s) }}
		for i := range 3 {
			c.PutFor(account.Source{Name: "ann"}, i, "yes", time.Now(), time.Hour)
			c.CallAt(i, time.Now().Add(time.Minute), func() { t.Errorf("called for %d", i) })
		}
		c.Clear()
		if _, ok := c.Get(1); ok || c.Len() != 0 || c.bytes != 0 || len(c.owned) != 0 {
			t.Errorf("%d answers are left, of %d bytes", c.Len(), c.bytes)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
	})
}
