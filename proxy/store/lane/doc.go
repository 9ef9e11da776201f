// Package lane serves one resource in one representation from a cache. A reflector follows the
// resource upstream and fills the cache (package reflector). A lane starts with its first client
// and stops when it has had none for a while.
//
//	lanes.go, lane.go     all lanes: which there are, who uses them, when they start and stop
//	apis.go               redefined resources, and versions that another server answers for
//	filling.go            the first list: how far it is, and who passes through meanwhile
//	waiting.go            requests that wait for it
//	freshness.go          proofs that a cache is as new as a request
//	scout.go              proofs by bookmarks; freshness_list.go: by lists
//	backfill.go           history from before the lane began
//	resolve_previous.go   whether a selector matched an object before that history
//	quarantine.go         resources that cannot be cached
//	keepers.go            whose account a lane counts for
//	tables.go             lanes of Tables, which keep events and no objects
//	checked.go            comparisons with upstream (package selfcheck)
//	status.go             a lane as an operator sees it; metrics.go: as Prometheus does
//
// It knows reflectors, the upstream and fanout. It knows no client's connection and no user's
// rights.
//
// # Freshness
//
// A read without a resourceVersion promises a state at least as new as the request (KEP-2340;
// KEP-3157 for watches). Kube-apiserver asks etcd for the current revision R and waits until its
// cache has reached R. A lane does the same with kube-apiserver in the place of etcd, once for all
// requests that wait.
//
// R is the resourceVersion of a list that is consistent, empty and costs next to nothing. It is
// harder to know that the lane's own stream has brought everything up to R. A list of one object
// does not say so either: it says R, and nothing about changes before R, unless the lane has
// reached R already. A quiet resource's stream says nothing, and another connection proves nothing
// about this one. One of these proves it:
//
//   - The stream itself passes R. A busy resource's stream does so within milliseconds.
//   - A list of the collection, which is consistent by itself, has the same objects in the same
//     versions as the cache. Then the cache's state is that of the list's resourceVersion. The
//     stream may still have to bring changes that undid each other. A client that is served on this
//     proof is not shown those changes (see fanout.Proof). Only the metadata is fetched.
//   - A second watch from the cache's resourceVersion, a scout, gets a bookmark B ≥ R. B says that
//     the scout has shown every change up to B. Once the lane's own stream has brought the last of
//     those changes, nothing is missing up to B.
//
// Kube-apiserver's watch cache offers a bookmark only once in 1 to 1.25 s, to all watches of a
// resource at the same instant, and does not pass on the progress that it gets from etcd
// (dispatchEvents in k8s.io/apiserver/pkg/storage/cacher). More scouts bring no more bookmarks. So
// scouts overlap just enough that none goes by while somebody asks, and a read that only a scout
// can prove waits for up to 1.25 s, or 2.25 s if it is the first. Lists are sooner, unless the
// collection is so large that kube-apiserver would need longer for its answer than a scout. Lists take
// at most a quarter of the time. Lists of only what a client selects were proofs, too. With 20,000 and
// 60,000 pods and lists of one node's, 8 clients got 50 to 58 lists in a second without them and 57 to
// 77 with them, and 50 clients as many: not worth 250 lines.
//
// It does not matter which of several kube-apiservers answers. R and the lists come from quorum
// reads of etcd, and a bookmark speaks of its own stream. A lane whose first list was requested
// after a read arrived needs no proof for that read, but one that a sibling replica has filled
// does. A read that is not proved within --freshness-timeout passes through.
//
// Upstream is asked for R at most once in 100 ms, whatever the load, as kube-apiserver asks etcd.
// The first read asks at once. A question serves the reads that came before it, and no later one.
//
// Kube-apiserver answers some reads as easily as it says R: a get, or a list of a few objects. It
// answers a page sooner than it lists a large collection. The first few of those at a time, of each
// resource, pass through, and only the others share a proof. So nobody waits longer than without
// watchfan, and kube-apiserver's work for a burst of any size stays bounded.
//
// # When upstream fails
//
// Clients' streams stay open through all of it; package reflector says what happens upstream. A
// read that may be stale is served from the cache meanwhile. A read that must be current passes
// through, or gets a Status of 503 that says when to come back.
package lane
