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
//	part.go    proofs of a part of a collection
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
// slow within the last minute.
//
// It does not matter which of several kube-apiservers answers. R and the lists come from quorum
// reads of etcd, and a bookmark speaks of its own stream.
//
// # Who shares a proof
//
// A question for R, and a list, serve the reads that had come before it was sent, and no later one: what is
// acknowledged before a read is then in the answer. Nothing else makes a read linearizable, so a question is
// sent as soon as the last is answered, without a fixed pace, for all reads that have come meanwhile.
// Kube-apiserver may let a question wait for etcd, for up to 100 ms while other resources are written. So
// the next is sent after 10 ms in any case; both are then answered at the same time.
//
// As long as R is what it was at a list, and the cache has not changed, what the list proved holds: R
// names one state of the resource, however the cluster came to it. So between two writes a question is enough.
//
// # Proofs in part
//
// While other resources are written and this one is not, a proof needs a list or a bookmark. A read with
// a namespace or selectors gets its own list, of the metadata of what it selects. If the cache has the
// same objects in the same versions, what the cache selects is upstream's state as of the list's
// resourceVersion: the proof above, with the part in the place of the collection. It says nothing of the
// other objects, so it is shown to no other read (fanout.Proof.Part). Such a list is sent beside a question
// that is not answered at once, because kube-apiserver makes both wait for the same.
//
// # What it costs kube-apiserver
//
// Never more than the reads would without the proxy. Each question and each list of a part has a read that it
// serves, and costs no more than that read. A list of the whole collection is sent at once for a read
// that would itself list as much, or beside lists of parts that cost as much together. Otherwise, as for
// pages, such lists take at most a quarter of the time. A get is answered without waiting for etcd, so
// gets pass through while other resources are written (ProveEasily).
package fresh
