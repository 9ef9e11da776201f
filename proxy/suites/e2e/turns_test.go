package e2e_test

import (
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"
)

var atOnce = flag.Int("at-once", 8, "tests that run at a time; they mostly wait for others' processes")

// longest are the tests that take longest. They begin first, in this order.
var longest = []string{"TestRBAC", "TestUpstreamRestarts", "TestSeeds", "TestReads", "TestScenarios",
	"TestCertificates", "TestLinearizable", "TestOracle", "TestTrimmed", "TestCBOR",
	"TestInformers"}

// parallel has t run beside others, when it is its turn. go test's own bound would start tests in any
// order, and a long one that begins last would run alone.
func parallel(t *testing.T) {
	t.Helper()
	turns.announce()
	t.Parallel()
	turns.take(t.Name())
	t.Cleanup(turns.give)
}

// turns lets the longest of the tests that wait begin. go test releases tests from t.Parallel when all of
// them have come there, so each of them is announced before the first takes its turn.
var turns turnstile

type turnstile struct {
	mu        sync.Mutex
	announced int // tests that will wait, or have waited
	came      int // of them
	running   int
	waiting   []turn
}

type turn struct {
	rank  int // in longest
	begin chan struct{}
}

func (s *turnstile) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced++
}

// take waits until the test of a name may begin.
func (s *turnstile) take(name string) {
	own := turn{len(longest), make(chan struct{})}
	if i := slices.IndexFunc(longest, func(l string) bool { return name == l || strings.HasPrefix(name, l+"/") }); i >= 0 {
		own.rank = i
	}
	s.mu.Lock()
	s.came++
	s.waiting = append(s.waiting, own)
	s.beginLocked()
	s.mu.Unlock()
	<-own.begin
}

// give ends a test's turn.
func (s *turnstile) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.beginLocked()
}

func (s *turnstile) beginLocked() {
	slices.SortStableFunc(s.waiting, func(a, b turn) int { return a.rank - b.rank })
	for s.came == s.announced && s.running < *atOnce && len(s.waiting) > 0 {
		close(s.waiting[0].begin)
		s.waiting = s.waiting[1:]
		s.running++
	}
}
