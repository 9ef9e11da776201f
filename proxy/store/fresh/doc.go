// Package fresh proves that a cache is as new as a request.
//
// A read without a resourceVersion promises a state at least as new as the request (KEP-2340;
// KEP-3157 for watches). Kube-apiserver asks etcd for the current revision R and waits until its
// cache has reached R. A [Prover] does the same with kube-apiserver in the place of etcd, once for
// all requests that wait.
//
//	prover.go  questions for R, and what answers them
//	scout.go   proofs by bookmarks
//	list.go    proofs by lists
//
// It knows a reflector, its collection and its cache, and how to start a goroutine. It knows no
// lane and no client.
//
// # Proofs
//
// R is the resourceVersion of a list that is consistent, empty and costs next to nothing. It is
// harder to know that the reflector's own stream has brought everything up to R. A list of one object
// does not say so either: it says R, and nothing about changes before R, unless the cache has
// reached R already. A quiet resource's stream says nothing, and another connection proves nothing
// about this one. One of these proves it:
//
//   - The stream itself passes R. A busy resource's stream does so within milliseconds.
//   - A list of the collection, which is consistent by itself, has the same objects in the same
//     versions as the cache. Then the cache's state is that of the list's resourceVersion. The
//     stream may still have to bring changes that undid each other. A client that is served on this
//     proof is not shown those changes (see fanout.Proof). Only the metadata is fetched.
//   - A second watch from the cache's resourceVersion, a scout, gets a bookmark B ≥ R. B says that
//     the scout has shown every change up to B. Once the reflector's own stream has brought the last
//     of those changes, nothing is missing up to B.
//
// Kube-apiserver's watch cache offers a bookmark only once in 1 to 1.25 s, to all watches of a
// resource at the same instant, and does not pass on the progress that it gets from etcd
// (dispatchEvents in k8s.io/apiserver/pkg/storage/cacher). More scouts bring no more bookmarks. So
// scouts overlap just enough that none goes by while somebody asks, and a read that only a scout
// can prove waits for up to 1.25 s, or 2.25 s if it is the first. Lists are sooner, unless the
// collection is so large that kube-apiserver would need longer for its answer than a scout, or was
// slow within the last minute. Lists take at most a quarter of the time.
//
// It does not matter which of several kube-apiservers answers. R and the lists come from quorum
// reads of etcd, and a bookmark speaks of its own stream.
//
// Upstream is asked for R at most once in 100 ms, whatever the load, as kube-apiserver asks etcd, or
// once in 20 ms while the stream is so busy that nothing else is needed. The first read asks at once.
// A question serves the reads that came before it, and no later one.
//
// While nothing is written to the whole cluster, R stays the same, and what has been proved about R
// holds. So a question is answered at once, and the next need not wait: one is under way at a time,
// for all reads that have come meanwhile. Each costs kube-apiserver no more than one of the reads
// would.
//
// While other resources are written and this one is not, a proof needs a list or a bookmark. Small
// reads then pass through, as many at a time as cost kube-apiserver what one list does (Worth).
package fresh
