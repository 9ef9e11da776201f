package admin

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { steady.Main(m) }
