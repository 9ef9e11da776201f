// Package lane serves one resource in one representation from a cache. A reflector follows the
// resource upstream and fills the cache (package reflector). A lane starts with its first client
// and stops when it has had none for a while.
//
//	lanes.go, lane.go     all lanes: which there are, when they start and stop, which cannot be cached
//	apis.go               redefined resources, and versions that another server answers for
//	mistrust.go           resources whose caches could not be repaired
//	filling.go            the first list: how far it is, and who passes through meanwhile
//	waiting.go            requests that wait for it
//	backfill.go           history from before the lane began, and what matched selectors before that
//	keepers.go            who uses a lane, and whose account it counts for
//	tables.go             lanes of Tables, which keep events and no objects
//	status.go             a lane as an operator sees it, with its last comparison (package selfcheck)
//	metrics.go            a lane as Prometheus sees it
//
// It knows reflectors, proofs of freshness, the upstream and fanout. It knows no client's connection
// and no user's rights.
//
// # Freshness
//
// A read without a resourceVersion is shown a state at least as new as the request; package fresh
// proves it. A lane whose first list was requested after a read arrived needs no proof for that
// read, but one that a sibling replica has filled does. A read that is not proved within
// --freshness-timeout passes through.
//
// While upstream fails (package reflector), a read that may be stale is served from the cache, and one that must be
// current passes through, or gets a Status of 503 that says when to come back.
package lane
