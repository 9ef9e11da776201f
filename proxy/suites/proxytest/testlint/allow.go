package main

import (
	"go/ast"
	"path/filepath"
	"regexp"

	"golang.org/x/tools/go/ast/inspector"
)

var directive = regexp.MustCompile(`^//testlint:allow (\w+) \w`)

// report notes a finding, unless a directive allows it.
func (p *pass) report(c inspector.Cursor, format string, args ...any) {
	for f := range c.Enclosing((*ast.File)(nil)) {
		if !p.allows(f.Node().(*ast.File), c) && !p.allowsAll() {
			p.Reportf(c.Node().Pos(), format, args...)
		}
	}
}

// allowsAll reports whether the documentation of the package has a directive.
func (p *pass) allowsAll() bool {
	for _, file := range p.Files {
		if name := filepath.Base(p.Fset.File(file.Pos()).Name()); (name == "doc.go" || name == "doc_test.go") && file.Doc != nil {
			for _, comment := range file.Doc.List {
				if p.isFor(comment) {
					return true
				}
			}
		}
	}
	return false
}

// isFor reports whether a comment is a directive that allows what breaks the rule.
func (p *pass) isFor(comment *ast.Comment) bool {
	match := directive.FindStringSubmatch(comment.Text)
	return match != nil && match[1] == p.Analyzer.Name
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
			d := line(c.Node()) - line(comment)
			if p.isFor(comment) && (d == 0 || d == 1 || group == of || comment.Pos() < file.Package) {
				return true
			}
		}
	}
	return false
}
