package admission

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
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
func reliefOf(h *holders) *Memory {
	return &Memory{limit: 1000, sheds: new(metrics.Counter), log: slog.New(slog.DiscardHandler), relief: relief{from: h, least: 10}}
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
		if got := strings.Join(h.did, ", "); got != want {
			t.Errorf("look %d gave back %s, want %s", i, got, want)
		}
		if got, want := m.refuses(), want == ""; got != want || !m.Short() || m.Spent() {
			t.Errorf("look %d: refuses %t, want %t; short %t, spent %t", i, got, want, m.Short(), m.Spent())
		}
	}
	if n := m.sheds.Get(); n != 2 {
		t.Errorf("%d lanes counted that stopped, want 2", n)
	}
	if m.look(860); !m.refuses() {
		t.Error("newcomers are not refused, and memory is still full")
	}
	if m.look(850); m.refuses() || !m.Short() {
		t.Error("newcomers are refused when memory is no longer full, or lanes begin while it is short")
	}
	h.lanes = []int64{300}
	h.did = nil
	for range 5 {
		m.look(850)
	}
	if len(h.did) > 0 {
		t.Errorf("%v while memory is short, and not full", h.did)
	}
	if m.look(700); m.Short() {
		t.Error("no lane begins when there is memory")
	}
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
		forgot := func(when string, want int) {
			t.Helper()
			if len(h.did) != want {
				t.Errorf("%s: lists were forgotten %d times in all, want %d", when, len(h.did), want)
			}
		}
		look(820, 1)
		forgot("memory has become short", 1)
		look(820, 3599)
		forgot("an hour later", 12) // after 5, 10, 20, … 320 s, and then each 600 s
		if collections != 12 {
			t.Errorf("%d collections", collections)
		}
		look(910, 1)
		forgot("memory has become full", 13)
		look(700, 1)
		look(820, 1)
		forgot("it was enough for a moment", 13)
		look(700, int(2*forgetMost/time.Second))
		look(820, 1)
		forgot("it was enough for long", 14)
	})
}
