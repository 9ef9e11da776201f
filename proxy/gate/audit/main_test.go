package audit

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

func TestMain(m *testing.M) {
	steady.Main(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
