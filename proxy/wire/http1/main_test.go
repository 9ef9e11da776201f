package http1

import (
	"testing"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

func TestMain(m *testing.M) {
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's date clock, which never ends, outside of bubbles
	steady.Main(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
