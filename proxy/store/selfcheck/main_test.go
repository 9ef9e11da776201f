package selfcheck

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { steady.Main(m) }
