package proxy_test

import (
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// lasting are the goroutines that libraries never end: fasthttp's date clock and worker pools, and
// lumberjack's, one for each file of an audit log.
var lasting = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they mostly wait
	goleak.VerifyTestMain(m, lasting...)
}

var watchfanMethod = regexp.MustCompile(`watchfan/(fanout|proxy(/\w+)*)\.\(`)

// awaitGoroutines waits until no goroutine is in a method of watchfan. Goroutines of the scripted
// kube-apiserver and of parallel tests, which wait meanwhile, do not count.
func awaitGoroutines(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(proxytest.Patience); ; {
		left := goleak.Find(lasting...)
		if left == nil ||
			!watchfanMethod.MatchString(strings.ReplaceAll(left.Error(), "watchfan/proxy/suites/proxytest.", "")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines are left after %s: %v", proxytest.Patience, left)
		}
	}
}
