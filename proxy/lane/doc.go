// Package lane follows one resource in one representation: a reflector lists and watches it at kube-apiserver, a
// [fanout.Cache] holds it, and proofs say how new that is. Lanes start with their first client and stop when idle.
//
//	lanes.go, lane.go            which lanes there are, and what one has
//	reflector.go, outcome.go     the list and the watch upstream, and what follows when they break
//	freshness.go                 proofs that a cache is as new as a request
//	backfill.go, resolve_previous.go  history from before the lane began
//	filling.go                   requests that wait for the first list
//	reencoding.go, quarantine.go, watchdog.go  what may go wrong
//
// It knows the upstream and fanout. It knows no client's connection and no user's rights.
package lane
