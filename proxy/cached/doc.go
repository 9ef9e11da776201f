// Package cached answers gets, lists and watches from lanes. A request is answered here only if a
// cache can answer it exactly as kube-apiserver would. In any doubt it is passed through, and
// kube-apiserver chooses the words.
//
//	reads.go             the way of one read: review, lane, wait, answer
//	little.go, alone.go  reads that kube-apiserver answers better itself
//	exclude.go           resources that are never cached
//	waiting.go           reads that wait for a lane to be filled
//	consistency.go       the state that a resourceVersion asks for
//	list.go              gets and lists; compressed_lists.go shares those with gzip
//	watch.go             watches; watch_subscribe.go has where they begin
//	drain.go             the end of watches before a shutdown
//
// It knows requests, identities, lanes and their caches. It knows no protocol, no port and no other
// limit than the fair share of processors (package fairness).
//
// # Before a yes
//
// Until kube-apiserver has said that the client may read, nothing that is cached is looked at, no
// lane is looked at or started, and nothing is asked in the proxy's own name but a review that only
// the proxy can ask. Otherwise a stranger could have us work, ask and list, and learn from the time
// that it takes what it may not see. Two kinds of reads are passed through without a review,
// because that would be a second request where one will do. Neither is chosen by what is cached:
//
//   - A get without a resourceVersion, if only a few of that resource are under way, or if a client
//     that may read has just found that the resource has no lane.
//   - A list that was small within the last minute, when the same client sent it and might read it.
//
// What an allowed client has us ask is bounded as well. kube-apiserver's list of groups, once every
// two seconds, answers for all groups that do not exist (servedVersions), and a few requests for
// discovery and for supported encodings are under way at a time.
//
// # One watch's life
//
// The first client of a resource in a representation starts its lane. A lane stops when it has had
// no client for --idle-timeout. A watch becomes a subscription of the lane's cache and a stream of its
// exchange. The flusher's shards write shared frames to the stream's sink, without waiting. It ends
// for one of the reasons in package fanout. If all that was promised has been written, the response
// ends properly, and the connection can carry another request. Otherwise it is broken off.
//
// A client may resume from a resourceVersion from before the lane began. One upstream watch, shared
// by all clients that wait, fetches the missing history. What a selector's client gets of it can
// depend on the objects' earlier versions. The earlier versions are fetched with an exact list.
//
// While a lane is being filled for the first time its clients wait, and a handful of them pass
// through; filling says how many, and when clients get 429. Passing through is bounded there
// because a resource that takes long to list is the one that kube-apiserver can least list for
// everybody. It is not bounded where waiting brings nothing: kube-apiserver does not let the proxy
// list the resource, an object can't be cached, or memory is full. What can't be proved fresh, or
// needs a past that is not known, passes through without a bound, too.
package cached
