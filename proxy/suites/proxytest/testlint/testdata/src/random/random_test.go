package random

import (
	old "math/rand"
	"math/rand/v2"
	"time"
)

var (
	_ = rand.IntN(5)                                            // want `rand.IntN has no known seed`
	_ = old.Intn                                                // want `rand.Intn has no known seed`
	_ = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) // want `a seed from the clock`
	_ = rand.New(rand.NewPCG(1, 0)).IntN(5)
	_ = old.New(old.NewSource(1)).Intn(5)
)
