package proxy_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
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
