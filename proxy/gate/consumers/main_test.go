package consumers

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

func TestMain(m *testing.M) { steady.Main(m) }
