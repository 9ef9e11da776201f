package main

import (
	"go/ast"
	"go/types"
	"reflect"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

var bubbleAnalyzer = &analysis.Analyzer{
	Name:       "bubble",
	Doc:        "finds the functions that run in bubbles of testing/synctest",
	Requires:   []*analysis.Analyzer{inspect.Analyzer},
	ResultType: reflect.TypeFor[*bubbles](),
	Run:        findBubbles,
}

// bubbles are the functions of a package that run in bubbles.
type bubbles struct {
	info *types.Info
	// only has an entry for each function, and for each variable, field and parameter with a function,
	// that the package uses: whether all of these uses are in bubbles.
	only map[types.Object]bool
}

func findBubbles(pass *analysis.Pass) (any, error) {
	b := &bubbles{pass.TypesInfo, make(map[types.Object]bool)}
	uses := make(map[types.Object][]inspector.Cursor)
	for c := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root().Preorder((*ast.Ident)(nil)) {
		obj := origin(b.info.Uses[c.Node().(*ast.Ident)])
		if obj == nil || obj.Pkg() != pass.Pkg || !isFunc(obj.Type()) || isName(c) {
			continue
		}
		uses[obj] = append(uses[obj], c)
		b.only[obj] = !obj.Exported() || !isShared(pass)
	}
	// What is left when nothing more falls away are the uses in bubbles, and recursion that nobody begins.
	for changed := true; changed; {
		changed = false
		for obj, only := range b.only {
			if only && slices.ContainsFunc(uses[obj], func(use inspector.Cursor) bool { return !b.goesIn(use) }) {
				b.only[obj], changed = false, true
			}
		}
	}
	return b, nil
}

// have reports whether the code at c runs in a bubble.
func (b *bubbles) have(c inspector.Cursor) bool {
	for f := range c.Enclosing((*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		if f == c {
			continue
		}
		if decl, ok := f.Node().(*ast.FuncDecl); ok {
			return b.only[b.info.Defs[decl.Name]]
		}
		return b.goesIn(f)
	}
	return false
}

// bubbleTests are the functions that run one of their arguments in a bubble.
var bubbleTests = []string{"testing/synctest.Test", inBubble + "Test", inBubble + "Row", inBubble + "Run"}

const inBubble = "github.com/watchfan/watchfan/proxy/suites/proxytest/bubble."

// goesIn reports whether a function literal, or the name of a function, stands in a bubble, or where
// only a bubble runs it.
func (b *bubbles) goesIn(c inspector.Cursor) bool {
	e := whole(c)
	kind, i := e.ParentEdge()
	switch parent := e.Parent(); kind {
	case edge.CallExpr_Args:
		call := parent.Node().(*ast.CallExpr)
		if f, ok := typeutil.Callee(b.info, call).(*types.Func); ok && slices.Contains(bubbleTests, f.FullName()) {
			return true
		}
		if signature, ok := b.info.TypeOf(call.Fun).(*types.Signature); ok && i < signature.Params().Len() && b.only[origin(signature.Params().At(i))] {
			return true
		}
	case edge.AssignStmt_Rhs:
		if lhs := parent.Node().(*ast.AssignStmt).Lhs; i < len(lhs) && b.only[b.named(lhs[i])] {
			return true
		}
	case edge.ValueSpec_Values:
		if names := parent.Node().(*ast.ValueSpec).Names; i < len(names) && b.only[b.info.Defs[names[i]]] {
			return true
		}
	case edge.KeyValueExpr_Value:
		if b.only[b.named(parent.Node().(*ast.KeyValueExpr).Key)] {
			return true
		}
	case edge.CompositeLit_Elts:
		if s, ok := b.info.TypeOf(parent.Node().(*ast.CompositeLit)).Underlying().(*types.Struct); ok && b.only[origin(s.Field(i))] {
			return true
		}
	}
	return b.have(e)
}

// named returns what an identifier or a selector is the name of, or nil.
func (b *bubbles) named(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return origin(b.info.ObjectOf(e))
	case *ast.SelectorExpr:
		return origin(b.info.ObjectOf(e.Sel))
	}
	return nil
}

// whole returns the expression in parentheses, or with a selector, of which c is the name.
func whole(c inspector.Cursor) inspector.Cursor {
	for {
		switch c.ParentEdgeKind() {
		case edge.ParenExpr_X, edge.SelectorExpr_Sel:
			c = c.Parent()
		default:
			return c
		}
	}
}

// isName reports whether c only names something that gets a value here, or is compared with nil.
func isName(c inspector.Cursor) bool {
	switch whole(c).ParentEdgeKind() {
	case edge.AssignStmt_Lhs, edge.KeyValueExpr_Key, edge.BinaryExpr_X, edge.BinaryExpr_Y:
		return true
	}
	return false
}

func isFunc(t types.Type) bool {
	_, ok := t.Underlying().(*types.Signature)
	return ok
}

// origin returns the object that a generic one is an instance of.
func origin(obj types.Object) types.Object {
	switch obj := obj.(type) {
	case *types.Func:
		return obj.Origin()
	case *types.Var:
		return obj.Origin()
	}
	return obj
}
