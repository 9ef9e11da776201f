// Package diagnose shows lanes and watches as an operator sees them. It serves the pages under
// /debug and the status page, and has the commands top and explain, which read these pages.
//
//	debug_watchers*.go     /debug/watchers: the page, its query, its answer
//	debug_passed.go        the watches that are passed through, and why they are
//	debug_lanes.go         /debug/lanes
//	history.go             /debug/history: the last five minutes, sampled
//	status_page.go         the status page, which reads all of these
//	top.go                 the commands top and explain; admin_port.go is their client
//
// It reads lanes, and the registers of the watches that are served (package watchers) and that are
// passed through. Nothing that serves clients depends on it. Package admin says which clients may see
// the pages.
package diagnose
