package fails

import "testing"

func TestPasses(t *testing.T) { t.Run("subtest", func(*testing.T) {}) }

func TestSkips(t *testing.T) { t.Skip("it is not counted") }

func TestFails(t *testing.T) {
	t.Run("subtest", func(t *testing.T) { t.Error("its words") })
}
