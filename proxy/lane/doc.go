// Package lane follows one resource in one representation: a reflector lists and watches it at
// kube-apiserver, a [fanout.Cache] holds it, and proofs say how new that is. Lanes start with their
// first client and stop when idle.
//
//	lanes.go, lane.go            which lanes there are, and what one has
//	reflector.go, outcome.go     the list and the watch upstream, and what follows when they break
//	freshness.go                 proofs that a cache is as new as a request
//	backfill.go, resolve_previous.go  history from before the lane began
//	filling.go                   requests that wait for the first list
//	reencoding.go, quarantine.go, watchdog.go  what may go wrong
//
// It knows the upstream and fanout. It knows no client's connection and no user's rights.
//
// # Freshness
//
// A read without a resourceVersion promises a state at least as new as the request (KEP-2340;
// KEP-3157 for watches). Kube-apiserver asks etcd for the current revision R and waits until its
// cache has come there. So do we, with kube-apiserver for etcd, and not once for each read but once
// for all that wait.
//
// R is had from a list that is consistent, empty and all but free. That our own stream has brought
// everything up to R is harder to know, because a quiet resource's stream says nothing, and what
// another connection has shown proves nothing of ours. One of these proves it:
//
//   - The stream itself passes R. A busy resource's does within milliseconds.
//   - A list of the collection, consistent by itself, has the same objects in the same versions as
//     the cache. Then the cache's state is that of the list's resourceVersion, although the stream
//     may have yet to bring changes that undid each other; who is served on this proof is not shown
//     those (see fanout.Proof). Only the metadata is fetched. Small collections are always proved
//     so, larger ones for a bounded part of the time.
//   - A second watch from the cache's resourceVersion with a timeout of 3 s gets a bookmark B ≥ R
//     after about a second: all that kube-apiserver sends short of a bookmark each minute. B says
//     that the second watch has shown every change up to B. Once our own stream has brought the
//     last of those, nothing is missing up to B.
//
// It does not matter which of several kube-apiservers answers: R and the list come out of quorum
// reads of etcd, whoever makes them, and a bookmark speaks of the stream that it is on. A lane that
// was first filled by a list asked for after the request needs no proof. What can't be proved
// within --freshness-timeout passes through.
//
// Where a read wants so little that kube-apiserver answers it as easily as it says R (a get, a list
// of a few objects), the first few at a time of each resource are passed through, and only those
// beyond share a proof: nobody waits longer than without us, and kube-apiserver's work for a burst
// of any size stays bounded.
//
// # When upstream fails
//
// Clients' streams stay open through all of it. What may be stale is served from the cache
// meanwhile; what must be current passes through, or is answered with a Status of 503 and when to
// come back.
//
//	the connection breaks             at once     resumed from the last resourceVersion
//	the link is dead, or the process  10 s        the same, see Upstream
//	stopped
//	a watch hangs, its connection     150 s       the same, see watchdog; sooner where a client's read shows what it did not bring
//	does not
//	the history is gone (410)         at once     one list, and its differences only; a few lanes at a time
//	a kube-apiserver that is behind   10 s        left for another, over a new connection; what it lists is not believed
//	etcd was restored                 at once     every client of the lane is told 410, when etcd itself is at an older resourceVersion
//
// A kube-apiserver that has come back may write the same objects in other bytes. Then every client
// of the lane is told 410, to list and see them; what equals is not touched. While several versions
// answer behind one address, a lane may hold what either has written; see reencoded.
//
// An etcd that was restored, and has already come past the lane's resourceVersion when it is seen
// again, continues a watch as if nothing had been, for every client of kube-apiserver; etcdutl's
// --bump-revision and --mark-compacted are against that. A lane finds it out when a consistent read
// lists a collection that the cache does not hold at that resourceVersion; then it lists, and what
// is older than what was shown before tells.
package lane
