// Package report holds figures and writes them: a section has the samples of a part, and becomes
// tables and lines of the Go benchmark format. It knows peers by their names alone.
package report
