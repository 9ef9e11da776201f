// Package diagnose shows watches and lanes as an operator sees them: why a watch is slow, the pages under /debug, the
// status page, and the commands top and explain that read these pages.
//
// It reads lanes and connections. Nothing that serves clients depends on it.
package diagnose
