package proxy_test

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/logging"
	"k8s.io/klog/v2"
)

// logKeys are the keys of all log lines.
var logKeys = strings.Fields(`
	address addresses bytes cacheResourceVersion certificate client clients connections connectionsCut
	definition delay differences digest drain elapsed encoding err events fallbackFor faults fields file
	fromResourceVersion generation groupVersion handler holds id idleTimeout keys lag lagBytes lagEvents
	lanesStopped limitBytes lines maxProcs memory memoryShort message method namespace objects panic parks
	path pid program queuedBytes reads reason relist relisted resentSegments resource resources resourceVersion retryIn rtt
	selection served service signal source stack stranger timeout unackedSegments upstreamDigest usedBytes
	user userAgent verb version view watches windowBytes`)

// TestLogLines: each line of the log is a constant sentence without a period, and its keys are in
// logKeys.
func TestLogLines(t *testing.T) {
	lines, used := 0, make(map[string]bool)
	inspectCalls(t, func(place token.Position, method *ast.SelectorExpr, args []ast.Expr) {
		if isLog(method.X) {
			switch method.Sel.Name {
			case "Debug", "Info", "Warn", "Error":
				lines++
				message := text(args[0])
				if message == "" || !unicode.IsUpper(rune(message[0])) || strings.HasSuffix(message, ".") {
					t.Errorf("%s: the message %q is no constant sentence that begins with a capital and ends without "+
						"a period", place, message)
				}
				args = args[1:]
			case "With":
			case "Handler", "Enabled":
				return
			default:
				t.Errorf("%s: %s: give a message, and keys with values", place, method.Sel.Name)
			}
			if len(args)%2 != 0 {
				t.Errorf("%s: a key without a value", place)
			}
			for i := 0; i+1 < len(args); i += 2 {
				key := text(args[i])
				if used[key] = true; !slices.Contains(logKeys, key) {
					t.Errorf("%s: %q is not one of logKeys: take the one that means the same, or add it", place, key)
				}
			}
		}
	})
	if lines < 25 {
		t.Errorf("only %d log lines were read", lines)
	}
	for _, key := range logKeys {
		if !used[key] {
			t.Errorf("no log line has the key %q", key)
		}
	}
}

// inspectCalls calls f for each call of a method, or of a function of another package, in the code of the product.
func inspectCalls(t *testing.T, f func(place token.Position, callee *ast.SelectorExpr, args []ast.Expr)) {
	t.Helper()
	set := token.NewFileSet()
	for _, dir := range []string{"..", "../proxy", "../proxy/*/*", "../fanout", "../framing"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "proxytest") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if callee, ok := call.Fun.(*ast.SelectorExpr); ok {
						f(set.Position(call.Pos()), callee, call.Args)
					}
				}
				return true
			})
		}
	}
}

// isLog reports whether x is a logger by its name: log, or something's log.
func isLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "log"
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "Log"
	}
	return false
}

// text returns a string literal's text, and "" for any other expression.
func text(x ast.Expr) string {
	literal, ok := x.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return s
}

// logger returns the log of a proxy with these flags. written flushes it and returns what it has written.
func logger(t *testing.T, flags ...string) (log *slog.Logger, written func() string) {
	t.Helper()
	o, err := proxy.ParseFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logging.New(slog.LevelInfo, "text", os.Stderr) }) // client-go's too
	var b bytes.Buffer
	log, flush := logging.New(o.LogLevel, o.LogFormat, &b)
	return log, func() string { flush(); return b.String() }
}

// TestVerbosity: -v decides which lines are logged, watchfan's and client-go's.
func TestVerbosity(t *testing.T) {
	f := func(flag, want string) {
		t.Helper()
		log, written := logger(t, flag)
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		for _, v := range []klog.Level{0, 1, 2, 3, 4, 5, 6, 9} {
			klog.V(v).InfoS("klog" + v.String())
			klog.FromContext(context.Background()).V(int(v)).Info("logr" + v.String())
		}
		var got []string
		for line := range strings.Lines(written()) {
			_, message, _ := strings.Cut(line, "msg=")
			got = append(got, strings.Fields(message)[0])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", flag, strings.Join(got, " "), want)
		}
	}
	f("-v=0", "info warn klog0 logr0")
	f("--log-level=info", "info warn klog0 logr0")
	f("--log-level=warn", "warn")
	f("-v=2", "info warn klog0 logr0 klog1 logr1 klog2 logr2")
	f("-v=4", "debug info warn klog0 logr0 klog1 logr1 klog2 logr2 klog3 logr3 klog4 logr4")
	f("--log-level=debug", "debug info warn klog0 logr0 klog1 logr1 klog2 logr2 klog3 logr3 klog4 logr4")
	f("-v=10", "debug info warn klog0 logr0 klog1 logr1 klog2 logr2 klog3 logr3 klog4 logr4")
}

// TestFormats: in both formats client-go's lines have the level DEBUG, and durations are text.
func TestFormats(t *testing.T) {
	for format, duration := range map[string]string{"text": "elapsed=1.5s", "json": `"elapsed":"1.5s"`} {
		log, written := logger(t, "-v=4", "--log-format="+format)
		log.Debug("Debug", "level", slog.LevelDebug+3, "elapsed", 1500*time.Millisecond)
		for v := range klog.Level(5) {
			klog.V(v).InfoS("klog" + v.String())
		}
		log.Warn("Warn")
		text := written()
		levels := regexp.MustCompile(`level"?[=:]"?([A-Z+0-9]+)`).FindAllStringSubmatch(text, -1)
		var got []string
		for _, m := range levels {
			got = append(got, m[1])
		}
		if want := "DEBUG DEBUG INFO DEBUG DEBUG DEBUG DEBUG WARN"; strings.Join(got, " ") != want || !strings.Contains(text, duration) {
			t.Errorf("%s: got %s, want %s and %s in\n%s", format, got, want, duration, text)
		}
	}
}

// Nothing is timed by the wall clock, because it jumps when it is set. A time.Time keeps the
// reading of the monotonic clock, and a time that is stored as a number is a fanout.MonotonicTime.
// The calls that lose this reading are allowed only in the places below.
func TestMonotonicClock(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"hijacked.go: time.Unix": "a deadline that is long past",
		"metrics.go: Unix":       "when a certificate expires",
	}
	inspectCalls(t, func(place token.Position, callee *ast.SelectorExpr, _ []ast.Expr) {
		what := callee.Sel.Name
		if of, ok := callee.X.(*ast.Ident); ok && of.Name == "time" {
			what = "time." + what
		}
		switch what {
		case "UnixNano", "UnixMicro", "UnixMilli", "Unix", "time.Unix", "time.UnixMilli", "time.UnixMicro":
			where := filepath.Base(place.Filename) + ": " + what
			if allowed[where] == "" {
				t.Errorf("%s: %s: use fanout.MonotonicTime, or a time.Time as it is", place, what)
			}
			delete(allowed, where)
		}
	})
	if len(allowed) > 0 {
		t.Errorf("no longer there: %v", allowed)
	}
}
