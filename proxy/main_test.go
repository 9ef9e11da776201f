package proxy_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails when a test leaves a goroutine of ours behind.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they mostly wait
	code := m.Run()
	if code == 0 {
		if left := leftover(5 * time.Second); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left after all tests:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// leftover returns the goroutines that are still there after patience, apart from this one and those that live as long as the process.
func leftover(patience time.Duration) string {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		var left []string
		for i, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if i == 0 || foreverRunning(g) {
				continue
			}
			left = append(left, g)
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

func foreverRunning(goroutine string) bool {
	for _, known := range []string{
		"fasthttp.updateServerDate", // the date clock
		"fasthttp.(*workerPool).Start",
		"klog/v2.(*flushDaemon)",
		"(*Logger).millRun", // lumberjack's, one for each audit log that is a file
		"testing.(*M).", "os/signal.",
	} {
		if strings.Contains(goroutine, known) {
			return true
		}
	}
	return false
}
