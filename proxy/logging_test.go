package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/watchfan/watchfan/proxy"
	"k8s.io/klog/v2"
)

// logKeys are the keys of all log lines.
var logKeys = map[string]string{
	"address":             "host and port",
	"bytes":               "a number",
	"certificate":         "a file's name",
	"client":              "a host and port",
	"clients":             "the hosts that reach a port, in words",
	"connectionsCut":      "a number",
	"definition":          "a CustomResourceDefinition's name",
	"delay":               "a duration",
	"differences":         "a number of objects",
	"digest":              "of a cache's objects",
	"drain":               "a duration",
	"elapsed":             "a duration: how long what the line tells of has taken",
	"encoding":            "a representation, as json or metadata-protobuf",
	"err":                 "an error",
	"events":              "a number",
	"file":                "a file's name",
	"handler":             "what panicked, in a few words",
	"fromResourceVersion": "a resourceVersion, where resourceVersion is how far",
	"generation":          "a definition's",
	"groupVersion":        "as apps/v1",
	"holds":               "what a file holds",
	"id":                  "a watch's, as watchfan top shows it",
	"idleTimeout":         "a duration",
	"keys":                "objects' names, and how each differs from upstream's",
	"lag":                 "a duration",
	"lagBytes":            "a number",
	"lagEvents":           "a number",
	"lanesStopped":        "a number",
	"limitBytes":          "a number",
	"lines":               "a number",
	"maxProcs":            "a number of CPUs",
	"memory":              "enough, short, full or spent",
	"memoryShort":         "whether something happened because memory was short",
	"message":             "a verdict's, in words",
	"method":              "of HTTP",
	"objects":             "a number",
	"panic":               "what a panic said",
	"parks":               "a number",
	"path":                "of a URL, without its query",
	"pid":                 "a process",
	"queuedBytes":         "of a socket; 0 too if the kernel does not say, as the next",
	"reason":              "a verdict's, or in words",
	"relist":              "whether a list is next",
	"relisted":            "whether it was not the first list",
	"resentSegments":      "of a socket",
	"resource":            "as apps/v1/deployments",
	"resourceVersion":     "a resourceVersion",
	"resources":           "as --exclude names them",
	"retryIn":             "a duration",
	"rtt":                 "a duration",
	"selection":           "the number of a lane of Tables with a selector",
	"served":              "whether kube-apiserver serves it",
	"signal":              "a signal's name",
	"source":              "a user's name, a token's sum or an address, as /debug/accounts shows it",
	"stack":               "of a goroutine",
	"stranger":            "whether kube-apiserver has not accepted the client of a source",
	"timeout":             "a duration",
	"unackedSegments":     "of a socket",
	"upstreamDigest":      "of upstream's objects",
	"usedBytes":           "a number",
	"userAgent":           "what a client calls itself, as /debug/watchers shows it",
	"version":             "watchfan's",
	"watches":             "a number",
	"windowBytes":         "of a socket",
}

// TestLogLines: each line of the log is a constant sentence without a period, and its keys are in
// logKeys.
func TestLogLines(t *testing.T) {
	var files []string
	for _, dir := range []string{"..", "../proxy", "../proxy/*", "../fanout", "../framing"} {
		more, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	lines, used := 0, make(map[string]bool)
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isLog(method.X) {
				return true
			}
			place, args := set.Position(call.Pos()), call.Args
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
				return true
			default:
				t.Errorf("%s: %s: give a message, and keys with values", place, method.Sel.Name)
			}
			if len(args)%2 != 0 {
				t.Errorf("%s: a key without a value", place)
			}
			for i := 0; i+1 < len(args); i += 2 {
				key := text(args[i])
				if used[key] = true; logKeys[key] == "" {
					t.Errorf("%s: %q is not one of logKeys: take the one that means the same, or add it", place, key)
				}
			}
			return true
		})
	}
	if lines < 25 {
		t.Errorf("only %d log lines were read", lines)
	}
	for key := range logKeys {
		if !used[key] {
			t.Errorf("no log line has the key %q", key)
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

// TestVerbosity: -v decides which lines are logged, watchfan's and client-go's.
func TestVerbosity(t *testing.T) {
	t.Cleanup(func() {
		o := proxy.NewOptions()
		o.NewLogger(os.Stderr)
	})
	f := func(flag, want string) {
		t.Helper()
		o, err := proxy.ParseFlags([]string{flag})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		log, flush := o.NewLogger(&b)
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		for _, v := range []klog.Level{0, 1, 2, 3, 4, 5, 6, 9} {
			klog.V(v).InfoS("klog" + v.String())
			klog.FromContext(context.Background()).V(int(v)).Info("logr" + v.String())
		}
		flush()
		var got []string
		for line := range strings.Lines(b.String()) {
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

// TestLevelNames: client-go's lines have the level DEBUG, in both formats.
func TestLevelNames(t *testing.T) {
	t.Cleanup(func() {
		o := proxy.NewOptions()
		o.NewLogger(os.Stderr)
	})
	for _, format := range []string{"text", "json"} {
		o, err := proxy.ParseFlags([]string{"-v=4", "--log-format=" + format})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		log, flush := o.NewLogger(&b)
		log.Debug("Debug", "level", slog.LevelDebug+3)
		for v := range klog.Level(5) {
			klog.V(v).InfoS("klog" + v.String())
		}
		log.Warn("Warn")
		flush()
		levels := regexp.MustCompile(`level"?[=:]"?([A-Z+0-9]+)`).FindAllStringSubmatch(b.String(), -1)
		var got []string
		for _, m := range levels {
			got = append(got, m[1])
		}
		if want := "DEBUG DEBUG INFO DEBUG DEBUG DEBUG DEBUG WARN"; strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s in\n%s", format, got, want, b.String())
		}
	}
}

// TestJSONLog: durations are text in JSON too.
func TestJSONLog(t *testing.T) {
	t.Cleanup(func() {
		o := proxy.NewOptions()
		o.NewLogger(os.Stderr)
	})
	o, err := proxy.ParseFlags([]string{"--log-format=json"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	log, flush := o.NewLogger(&b)
	log.Info("Stopped", "elapsed", 1500*time.Millisecond, "err", os.ErrClosed)
	flush()
	var got map[string]string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["elapsed"] != "1.5s" ||
		got["err"] != os.ErrClosed.Error() || got["level"] != slog.LevelInfo.String() {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestUnreadLog: nothing waits for a log that is not read. Its first lines are kept, in order, and it
// says how many are lost. The end of the process waits for it for a second.
func TestUnreadLog(t *testing.T) {
	t.Cleanup(func() {
		o := proxy.NewOptions()
		o.NewLogger(os.Stderr)
	})
	synctest.Test(t, func(t *testing.T) {
		const written = 40_000
		o := proxy.NewOptions()
		r, w := io.Pipe()
		log, flush := o.NewLogger(w)
		for i := range written {
			log.Info("Line", "events", i)
		}
		began := time.Now()
		flush()
		if took := time.Since(began); took != time.Second {
			t.Errorf("flush waited for %v", took)
		}
		got := make(chan string)
		go func() {
			all, _ := io.ReadAll(r)
			got <- string(all)
		}()
		flush()
		w.Close()
		kept, lost := 0, 0
		for line := range strings.Lines(<-got) {
			if _, n, ok := strings.Cut(line, "lines="); ok {
				lost, _ = strconv.Atoi(strings.TrimSpace(n))
			} else if !strings.HasSuffix(line, " events="+strconv.Itoa(kept)+"\n") {
				t.Fatalf("line %d is %s", kept, line)
			} else {
				kept++
			}
		}
		if lost == 0 || kept < 10_000 || kept+lost != written {
			t.Errorf("%d lines are kept and %d lost, of %d", kept, lost, written)
		}
	})
}
