package http1

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

func TestMain(m *testing.M) {
	steady.Main(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
