package steady

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Rand returns a generator of random numbers, for one goroutine at a time. Its numbers are the same in
// each run, unless the environment variable TEST_SEED gives another seed than 1. A test that fails logs
// the seed.
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
	return rand.New(rand.NewPCG(seed, 0))
}
