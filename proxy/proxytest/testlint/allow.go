package main

import (
	"go/ast"
	"regexp"

	"golang.org/x/tools/go/ast/inspector"
)

var directive = regexp.MustCompile(`^//testlint:allow (\w+) \w`)

// report notes a finding, unless a directive allows it.
func (p *pass) report(c inspector.Cursor, format string, args ...any) {
	for f := range c.Enclosing((*ast.File)(nil)) {
		if !p.allows(f.Node().(*ast.File), c) {
			p.Reportf(c.Node().Pos(), format, args...)
		}
	}
}

// allows reports whether a directive in the file is for c.
func (p *pass) allows(file *ast.File, c inspector.Cursor) bool {
	line := func(n ast.Node) int { return p.Fset.Position(n.Pos()).Line }
	var of *ast.CommentGroup // the comment of the function
	for f := range c.Enclosing((*ast.FuncDecl)(nil)) {
		of = f.Node().(*ast.FuncDecl).Doc
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			match := directive.FindStringSubmatch(comment.Text)
			if match == nil || match[1] != p.Analyzer.Name {
				continue
			}
			d := line(c.Node()) - line(comment)
			if d == 0 || d == 1 || group == of || comment.Pos() < file.Package {
				return true
			}
		}
	}
	return false
}
