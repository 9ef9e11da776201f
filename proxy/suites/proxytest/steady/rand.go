package steady

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Rand returns a generator of random numbers. They are the same in each run, unless the environment
// variable TEST_SEED gives another seed than 1. A test that fails logs the seed. Any goroutine may draw,
// but only for a single one it is the same number each time.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(1)
	if given := os.Getenv("TEST_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("TEST_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("random numbers of TEST_SEED=%d", seed)
		}
	})
	return rand.New(&locked{source: rand.NewPCG(seed, 0)})
}

// locked is a source for any number of goroutines. A rand.Rand has no other state than its source's.
type locked struct {
	mu     sync.Mutex
	source rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source.Uint64()
}
