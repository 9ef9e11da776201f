package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

var rules = []*analysis.Analyzer{
	rule("timer", "tests use no timer outside a bubble", timers),
	rule("elapsed", "tests compare no elapsed time outside a bubble", elapsed),
	rule("deadline", "tests set no deadline below a minute outside a bubble", deadlines),
	rule("timeout", "tests open no short watch outside a bubble", timeouts),
	rule("metrics", "no package registers metrics for the whole process", registrations),
	rule("random", "tests draw random numbers only from generators with a known seed", randomness),
	rule("port", "tests listen on no port that is chosen before", ports),
	rule("parallel", "a test with parallel subtests is itself parallel", parallel),
}

// pass is the application of a rule to a package.
type pass struct {
	*analysis.Pass
	*bubbles
	root inspector.Cursor
}

func rule(name, doc string, run func(*pass)) *analysis.Analyzer {
	return &analysis.Analyzer{Name: name, Doc: doc, Requires: []*analysis.Analyzer{inspect.Analyzer, bubbleAnalyzer},
		Run: func(p *analysis.Pass) (any, error) {
			run(&pass{p, p.ResultOf[bubbleAnalyzer].(*bubbles), p.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()})
			return nil, nil
		}}
}

func timers(p *pass) {
	const says = "%s.%s outside a bubble: wait for a condition with steady.Until, or use synctest.Test"
	for c := range p.root.Preorder((*ast.Ident)(nil)) {
		f, ok := p.TypesInfo.Uses[c.Node().(*ast.Ident)].(*types.Func)
		if !ok || !p.isTest(c) || p.have(c) {
			continue
		}
		switch f.FullName() {
		case "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick",
			"github.com/watchfan/watchfan/proxy/suites/proxytest.Sleep":
			p.report(c, says, f.Pkg().Name(), f.Name())
		}
	}
}

// elapsed follows the elapsed time through the variables, fields and functions of the package.
func elapsed(p *pass) {
	holders := make(map[types.Object]bool)
	for changed := true; changed; {
		changed = false
		hold := func(obj types.Object) {
			if obj != nil && !holders[obj] {
				holders[obj], changed = true, true
			}
		}
		for c := range p.root.Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.KeyValueExpr)(nil)) {
			if !p.isTest(c) || p.have(c) {
				continue
			}
			switch n := c.Node().(type) {
			case *ast.AssignStmt:
				for i, e := range n.Rhs {
					if len(n.Lhs) == len(n.Rhs) && p.isElapsed(e, holders) {
						hold(p.named(n.Lhs[i]))
					}
				}
			case *ast.ValueSpec:
				for i, e := range n.Values {
					if len(n.Names) == len(n.Values) && p.isElapsed(e, holders) {
						hold(p.named(n.Names[i]))
					}
				}
			case *ast.KeyValueExpr:
				if p.isElapsed(n.Value, holders) {
					hold(p.named(n.Key))
				}
			}
		}
	}
	for c := range p.root.Preorder((*ast.BinaryExpr)(nil)) {
		e := c.Node().(*ast.BinaryExpr)
		switch e.Op {
		case token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ:
			if p.isTest(c) && !p.have(c) && (p.isElapsed(e.X, holders) || p.isElapsed(e.Y, holders)) {
				p.report(c, "elapsed time in a condition outside a bubble: log it, or use synctest.Test")
			}
		}
	}
}

// isElapsed reports whether e is computed from elapsed time.
func (p *pass) isElapsed(e ast.Expr, holders map[types.Object]bool) bool {
	t := p.TypesInfo.TypeOf(e)
	if t == nil { // x.(type) has none
		return false
	}
	if basic, ok := t.Underlying().(*types.Basic); !ok || basic.Info()&types.IsNumeric == 0 {
		return false
	}
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			switch obj := origin(p.TypesInfo.Uses[n]).(type) {
			case *types.Func:
				name := obj.FullName()
				found = found || name == "time.Since" || name == "time.Until" || name == "(time.Time).Sub"
			case *types.Var:
				found = found || holders[obj]
			}
		}
		return !found
	})
	return found
}

func deadlines(p *pass) {
	for c := range p.root.Preorder((*ast.CallExpr)(nil), (*ast.KeyValueExpr)(nil)) {
		if !p.isTest(c) || p.have(c) {
			continue
		}
		e := p.deadline(c.Node())
		if e == nil || p.TypesInfo.Types[e].Value == nil {
			continue
		}
		if d, _ := constant.Int64Val(p.TypesInfo.Types[e].Value); d > 0 && d < int64(time.Minute) {
			p.report(c, "a deadline of %s outside a bubble: use steady.Patience, which only ends what hangs", time.Duration(d))
		}
	}
}

// deadline returns the duration from now to the deadline that n sets, or nil.
func (p *pass) deadline(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if field := p.named(n.Key); field != nil && field.Pkg() != nil && field.Pkg().Path() == "net/http" && field.Name() == "Timeout" {
			return n.Value
		}
	case *ast.CallExpr:
		if p.calls(n, "context.WithTimeout") || p.calls(n, "context.WithTimeoutCause") {
			return n.Args[1]
		}
		if !p.calls(n, "(time.Time).Add") {
			return nil
		}
		if now, ok := n.Fun.(*ast.SelectorExpr).X.(*ast.CallExpr); ok && p.calls(now, "time.Now") {
			return n.Args[0]
		}
	}
	return nil
}

var shortTimeout = regexp.MustCompile(`timeoutSeconds=\d\d?\b`)

func timeouts(p *pass) {
	for c := range p.root.Preorder((*ast.BasicLit)(nil)) {
		if p.isTest(c) && !p.have(c) && shortTimeout.MatchString(c.Node().(*ast.BasicLit).Value) {
			p.report(c, "a watch that ends by the clock: end it at a marker object")
		}
	}
}

func registrations(p *pass) {
	for c := range p.root.Preorder((*ast.Ident)(nil)) {
		f, ok := p.TypesInfo.Uses[c.Node().(*ast.Ident)].(*types.Func)
		if !ok || f.Pkg() == nil || f.Pkg().Path() != "github.com/VictoriaMetrics/metrics" || f.Signature().Recv() != nil || p.isTest(c) {
			continue
		}
		if name := f.Name(); name != "NewSet" && (strings.HasPrefix(name, "New") || strings.HasPrefix(name, "GetOrCreate")) {
			p.report(c, "metrics.%s registers for the whole process: use the metrics.Set of a server", name)
		}
	}
}

func randomness(p *pass) {
	for c := range p.root.Preorder((*ast.Ident)(nil)) {
		f, ok := p.TypesInfo.Uses[c.Node().(*ast.Ident)].(*types.Func)
		if !ok || f.Pkg() == nil || !strings.HasPrefix(f.Pkg().Path(), "math/rand") || f.Signature().Recv() != nil || !p.isTest(c) {
			continue
		}
		switch f.Name() {
		case "New", "NewZipf":
		case "NewSource", "NewPCG", "NewChaCha8":
			for call := range c.Enclosing((*ast.CallExpr)(nil)) {
				if slices.ContainsFunc(call.Node().(*ast.CallExpr).Args, func(e ast.Expr) bool { return p.within(e, "time.Now") }) {
					p.report(c, "a seed from the clock: use steady.Rand")
				}
				break
			}
		default:
			p.report(c, "rand.%s has no known seed: use steady.Rand", f.Name())
		}
	}
}

// fixedPort is an address of this machine, as a program or a listener is told.
var fixedPort = regexp.MustCompile(`^["` + "`" + `](127\.0\.0\.1|localhost|\[::1?\]|0\.0\.0\.0)?:[1-9]\d*["` + "`" + `]$`)

func ports(p *pass) {
	for c := range p.root.Preorder((*ast.CallExpr)(nil)) {
		f, ok := typeutil.Callee(p.TypesInfo, c.Node().(*ast.CallExpr)).(*types.Func)
		if !ok || !p.isTest(c) {
			continue
		}
		if f.Name() == "FreePort" {
			p.report(c, "a free port may be taken when it is used: listen on port 0")
		}
		if strings.HasPrefix(f.Name(), "Listen") {
			for lit := range c.Preorder((*ast.BasicLit)(nil)) {
				if fixedPort.MatchString(lit.Node().(*ast.BasicLit).Value) {
					p.report(lit, "a fixed port: listen on port 0")
				}
			}
		}
	}
}

func parallel(p *pass) {
	waits := make(map[types.Object]bool) // functions that call Parallel for their caller
	var tests []inspector.Cursor
	for c := range p.root.Preorder((*ast.FuncDecl)(nil)) {
		if !p.isTest(c) {
			continue
		}
		decl := c.Node().(*ast.FuncDecl)
		if strings.HasPrefix(decl.Name.Name, "Test") {
			tests = append(tests, c)
		} else if itself, _ := p.parallel(c, nil); itself {
			waits[p.TypesInfo.Defs[decl.Name]] = true
		}
	}
	for _, c := range tests {
		if itself, subtests := p.parallel(c, waits); subtests && !itself {
			p.report(c, "%s has parallel subtests, and is not parallel", c.Node().(*ast.FuncDecl).Name.Name)
		}
	}
}

// parallel reports whether a function calls Parallel, or one that does, and whether literals in it do.
func (p *pass) parallel(c inspector.Cursor, waits map[types.Object]bool) (itself, literals bool) {
	for call := range c.Preorder((*ast.CallExpr)(nil)) {
		node := call.Node().(*ast.CallExpr)
		if !p.calls(node, "(*testing.T).Parallel") && !waits[typeutil.Callee(p.TypesInfo, node)] {
			continue
		}
		for f := range call.Enclosing((*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
			itself, literals = itself || f == c, literals || f != c
			break
		}
	}
	return itself, literals
}

// calls reports whether call is of the function with a name.
func (p *pass) calls(call *ast.CallExpr, name string) bool {
	f, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func)
	return ok && f.FullName() == name
}

// within reports whether e has a call of the function with a name.
func (p *pass) within(e ast.Expr, name string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && p.calls(call, name)
		return !found
	})
	return found
}

// isTest reports whether c is in a file of tests.
func (p *pass) isTest(c inspector.Cursor) bool {
	return isShared(p.Pass) || strings.HasSuffix(p.Fset.File(c.Node().Pos()).Name(), "_test.go")
}

// isShared reports whether tests of other packages use the package.
func isShared(p *analysis.Pass) bool {
	return slices.Contains(strings.Split(filepath.ToSlash(p.Pkg.Path()), "/"), "proxytest")
}
