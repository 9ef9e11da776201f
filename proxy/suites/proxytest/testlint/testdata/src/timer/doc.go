// Package timer breaks the rules.
//
//testlint:allow random the whole package may
package timer
