package proxy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing is timed by the wall clock, because it jumps when it is set. A time.Time keeps the
// reading of the monotonic clock, and a time that is stored as a number is a fanout.MonotonicTime.
// The calls that lose this reading are allowed only in the places below.
func TestMonotonicClock(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"hijacked.go: time.Unix": "a deadline that is long past",
		"metrics.go: Unix":       "when a certificate expires",
	}
	files, err := watchfanFiles()
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "proxytest") {
			continue
		}
		looked++
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			what := selector.Sel.Name
			if of, ok := selector.X.(*ast.Ident); ok && of.Name == "time" {
				what = "time." + what
			}
			switch what {
			case "UnixNano", "UnixMicro", "UnixMilli", "Unix", "time.Unix", "time.UnixMilli", "time.UnixMicro":
				if where := filepath.Base(file) + ": " + what; allowed[where] == "" {
					t.Errorf("%s: %s: use fanout.MonotonicTime, or a time.Time as it is",
						set.Position(call.Pos()), what)
				}
			}
			return true
		})
	}
	if looked < 50 {
		t.Errorf("looked at %d files only", looked)
	}
}

// watchfanFiles returns the Go files of fanout, of proxy and of its packages.
func watchfanFiles() (files []string, err error) {
	for _, pattern := range []string{"../fanout/*.go", "*.go", "*/*.go"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}
