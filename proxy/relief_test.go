package proxy

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/account"
)

// holders is what there is to give back. It notes what was asked for and given.
type holders struct {
	passing, copies, lanes []int64 // bytes of sources, the largest first
	unused                 int     // lanes
	did                    []string
}

func (h *holders) Relieve(least int64, some ...account.Kind) int64 {
	from := &h.passing
	switch {
	case slices.Contains(some, account.Copies):
		from = &h.copies
	case slices.Contains(some, account.Lanes):
		from = &h.lanes
	}
	if len(*from) == 0 || (*from)[0] < least {
		return 0
	}
	bytes := (*from)[0]
	*from = (*from)[1:]
	h.did = append(h.did, fmt.Sprintf("cut %v %d", some[len(some)-1], bytes))
	return bytes
}

func (h *holders) StopUnused() int {
	n := h.unused
	if h.unused = 0; n > 0 {
		h.did = append(h.did, "stop")
	}
	return n
}

func (h *holders) Forget() { h.did = append(h.did, "forget") }

// reliefOf returns a memory of 1000 bytes whose relief gives back what h has.
func reliefOf(h *holders) *memory {
	return &memory{limit: 1000, sheds: new(metrics.Counter), log: slog.New(slog.DiscardHandler), relief: relief{from: h, least: 10}}
}

// The largest holder is cut first. One thing is given back at a time, lanes in use at the end, and
// newcomers are refused when nothing is left.
func TestReliefOrder(t *testing.T) {
	h := &holders{passing: []int64{50, 20, 9}, copies: []int64{40, 5}, lanes: []int64{300}, unused: 2}
	m := reliefOf(h)
	for i, want := range []string{
		"cut connections 50", "cut connections 20, stop", "forget", "cut copies 40", "cut lanes 300", "", "",
	} {
		h.did = nil
		m.look(920)
		if got := fmt.Sprint(h.did); got != fmt.Sprint(splitList(want)) {
			t.Errorf("look %d gave back %s, want %s", i, got, want)
		}
		if got, want := m.refuses(), want == ""; got != want {
			t.Errorf("look %d: refuses %t, want %t", i, got, want)
		}
	}
	if m.look(860); !m.refuses() {
		t.Error("newcomers are not refused, and memory is still full")
	}
	if m.look(850); m.refuses() {
		t.Error("newcomers are refused when memory is no longer full")
	}
	h.lanes = []int64{300}
	h.did = nil
	for range 5 {
		m.look(850)
	}
	if len(h.did) > 0 {
		t.Errorf("%v while memory is short, and not full", h.did)
	}
}

func splitList(s string) (all []string) {
	for part := range strings.SplitSeq(s, ", ") {
		if part != "" {
			all = append(all, part)
		}
	}
	return all
}

// A source that comes back each second does not keep the rest from being given back, nor newcomers
// from being refused.
func TestReliefAgain(t *testing.T) {
	h := &holders{unused: 1}
	m := reliefOf(h)
	for range 4 {
		h.passing = []int64{100}
		m.look(950)
	}
	want := []string{"cut connections 100", "cut connections 100", "stop", "cut connections 100", "forget", "cut connections 100"}
	if !slices.Equal(h.did, want) || !m.refuses() {
		t.Errorf("gave back %v, refuses %t; want %v", h.did, m.refuses(), want)
	}
}

// While memory is short for an hour, because its normal use is that much, lists and indexes are
// forgotten a few times and not each second, and no more collections run. When a higher level is
// reached, they are forgotten at once.
func TestReliefBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holders{}
		m := reliefOf(h)
		collections := 0
		look := func(used int64, times int) {
			for range times {
				if m.relief.freed {
					collections++
					m.relief.freed = false
				}
				m.look(used)
				time.Sleep(memoryEvery)
			}
		}
		look(820, 1)
		if len(h.did) != 1 {
			t.Fatalf("gave back %v when memory became short", h.did)
		}
		look(820, 3599)
		// After 5, 10, 20, … 320 s, and then each 600 s.
		if n := len(h.did); n != 12 || collections != n {
			t.Errorf("lists were forgotten %d times in an hour, with %d collections; want 12", n, collections)
		}
		if look(910, 1); len(h.did) != 13 {
			t.Error("lists were not forgotten when memory became full")
		}
		look(700, 1)
		if look(820, 1); len(h.did) != 13 {
			t.Error("lists were forgotten again after a moment in which memory was enough")
		}
		look(700, int(2*forgetMost/time.Second))
		if look(820, 1); len(h.did) != 14 {
			t.Error("lists were not forgotten when memory became short again")
		}
	})
}
