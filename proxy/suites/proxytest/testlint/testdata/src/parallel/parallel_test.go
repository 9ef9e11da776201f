package parallel

import "testing"

func TestWaits(t *testing.T) { // want `TestWaits has parallel subtests, and is not parallel`
	t.Run("subtest", func(t *testing.T) { t.Parallel() })
}

func TestParallel(t *testing.T) {
	t.Parallel()
	t.Run("subtest", func(t *testing.T) { t.Parallel() })
}

// Some tests wait for their turn.
func wait(t *testing.T) { t.Parallel() }

func TestWaitsForItsTurn(t *testing.T) {
	wait(t)
	t.Run("subtest", func(t *testing.T) { t.Parallel() })
}

func TestSubtestsWait(t *testing.T) { // want `TestSubtestsWait has parallel subtests, and is not parallel`
	t.Run("subtest", func(t *testing.T) { wait(t) })
}

// The subtests share the machine with no other test.
//
//testlint:allow parallel nothing else may run
func TestAlone(t *testing.T) {
	t.Run("subtest", func(t *testing.T) { t.Parallel() })
}
