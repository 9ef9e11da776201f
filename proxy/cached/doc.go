// Package cached answers gets, lists and watches from lanes. A request is answered here only if a
// cache can answer it exactly as kube-apiserver would. In any doubt it is passed through.
//
//	reads.go             one read from start to end: review, lane, wait, answer
//	little.go, alone.go  reads that are cheaper to pass through
//	exclude.go           resources that are never cached
//	waiting.go           reads that wait for a lane to be filled
//	consistency.go       the state that a resourceVersion asks for
//	list.go              gets and lists; compressed_lists.go shares those with gzip
//	list_tables.go       lists in Tables; shared_lists.go shares those asked for at the same instant
//	watch.go             watches; watch_subscribe.go chooses where they begin
//	watch_tables.go      watches in Tables, as kubectl's
//	seeds.go             sibling replicas that ask for the content of a lane
//	drain.go             the end of watches before a shutdown
//
// The package handles requests, identities, lanes and their caches. Protocols and ports are
// elsewhere. The only limit that it enforces is the fair share of processors (package fairness).
//
// # Before a review allows a read
//
// Until kube-apiserver has allowed the read, the proxy looks at no cached object, and looks at or
// starts no lane. It sends nothing in its own name except a review that only the proxy can ask.
// Otherwise a stranger could make the proxy work, ask and list, and could infer hidden data from
// response times. These reads are passed through without a review, because the review would be a
// second request. None of these choices looks at a cache:
//
//   - A get without a resourceVersion, if only a few of that resource are under way, or if an
//     allowed client has just found that the resource has no lane.
//   - A list that was small within the last minute, when the same client was allowed the same list.
//   - A list in Tables, if nobody else has just asked for the same.
//
// The questions that an allowed client causes are bounded too. kube-apiserver's list of groups is
// read at most once every two seconds for all groups that do not exist (servedVersions in package
// upstream). Only a few requests for discovery and for supported encodings are under way at a time.
//
// # The life of a watch
//
// The first client of a resource in a representation starts its lane. A lane stops when it has had
// no client for --idle-timeout. A watch becomes a subscription of the lane's cache and a stream of
// its exchange. The flusher's shards write shared frames to the stream's sink, without waiting. A
// watch ends for one of the reasons in package fanout. If everything promised has been written, the
// response ends properly, and the connection can carry another request. Otherwise the connection is
// broken off.
//
// A watch may be the messages of a WebSocket. Its head is then the answer to the handshake, which
// may be a refusal, and it is not compressed.
//
// A watch in Tables begins with the changes after a resourceVersion, as kubectl's after its list.
// Its rows are those that kube-apiserver made for the lane's own watch. Their ages may be a second
// old, so a watch whose first rows are older passes through.
//
// A client may resume from a resourceVersion from before the lane began. One upstream watch, shared
// by all clients that wait, fetches the missing history. The events for a client with a selector
// can depend on earlier versions of the objects. These are fetched with an exact list. A client may
// also resume from a resourceVersion that a relist skipped. Kube-apiserver may still have that
// history, so a few such watches at a time pass through; the others get 410.
//
// While a lane is filled for the first time, its clients wait, and a handful of them pass through.
// A watch that passes through for that reason ends behind a bookmark once the lane is filled, and
// its client resumes at the lane. Watches end only if their clients are known to resume: see
// read.returns. The type filling in package lane documents how many, and when clients get 429. The
// bound protects kube-apiserver from listing a slow resource for every client. There is no bound if
// waiting brings nothing: kube-apiserver does not let the proxy list the resource, an object can't
// be cached, or memory is full. There is no bound either for a read that can't be proved fresh or
// that needs unknown history.
package cached
