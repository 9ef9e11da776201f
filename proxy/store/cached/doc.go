// Package cached answers gets, lists and watches from lanes. A request is answered here only if a
// cache can answer it exactly as kube-apiserver would. In any doubt it is passed through.
//
//	reads.go             one read from start to end: review, lane, wait, answer; the end of all watches
//	read.go              what is known of a read: its resource, form, variant, lane and filter
//	pass.go              when reads pass through: now, in turns or never
//	resident.go          resources whose lanes start with the proxy
//	options.go           the options, and resources that are never cached
//	waiting.go           reads that wait for a lane to be filled
//	consistency.go       the state that a resourceVersion asks for
//	list.go              gets and lists; compressed_lists.go shares those with gzip
//	list_tables.go       lists in Tables (package sharedlist)
//	shards.go            lists and watches, with a shardSelector or in a view, that must not pass through
//	watch.go             watches; watch_subscribe.go chooses where they begin
//	seeds.go             sibling replicas that ask for the content of a lane
//	rules.go             changes of rules and views, and of the views that namespaces name
//	observe.go           reads that a rule keeps from the caches, and what would answer them (package observe)
//
// It handles requests, identities, lanes and their caches, and no protocols. The only limit that it enforces
// is the fair share of processors (package fairness).
//
// # Before a review allows a read
//
// Until kube-apiserver has allowed the read, the proxy looks at no cached object, and looks at or
// starts no lane. It sends nothing in its own name except a review that only the proxy can ask.
// Otherwise a stranger could make the proxy work, ask and list, and could infer hidden data from
// response times. These reads are passed through without a review, because the review would be a
// second request. None of these choices looks at a cache:
//
//   - A get without a resourceVersion, if only a few of that resource are under way, or if an allowed
//     client has just found that the resource has no lane, or that a proof takes longer than a get.
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
// A watch may be the messages of a WebSocket: the answer to the handshake is its head, and it is not compressed.
//
// A client may ask for objects without metadata.managedFields (KEP-5958), or use a view, whose objects
// lack fields. It is served from the same lane as others, and the fields are left out of the bytes: of
// watches in package fanout, of gets and lists here. Where kube-apiserver answers, it may ignore
// KEP-5958, as it does up to 1.37. Where a view's fields can't be left out of the representation that
// the client prefers, the next one of its Accept header counts, and without one the client gets 406. A
// list or get in a view does not pass through because kube-apiserver answers it as easily: the objects
// might be whole. A get of a resource without a lane does pass through.
//
// A client may resume from a resourceVersion from before the lane began. One upstream watch, shared
// by all clients that wait, fetches the missing history. The events for a client with a selector
// can depend on earlier versions of the objects. These are fetched with an exact list. A client that
// resumes from a resourceVersion that a relist skipped gets 410, and lists here.
//
// While a lane is filled for the first time, its clients wait, and a handful of them pass through.
// A watch that passes through for that reason ends behind a bookmark once the lane is filled, and
// its client resumes at the lane: only if the client is known to resume, see read.returns. The type
// filling in package lane documents how many, and when clients get 429.
//
// # shardSelector
//
// A list or watch with a shardSelector (KEP-5866) is answered from a lane, whatever
// kube-apiserver's version. Most kube-apiservers ignore the parameter and send everything.
// kube-apiserver is asked once in a while whether it does; see upstream.Sharding. If it serves
// shardSelector, nothing here differs from other selectors. Otherwise the client must not be sent the
// objects of all other shards without being told: it gets 500, 503, 410 or 429 (shards.go).
//
// A read that no lane may answer passes through, as without the proxy: an uncacheable resource
// or representation, a Table, indented JSON, a current list of events, or no memory for a lane. So does
// a read while a review fails, or while it is not known who answers for a group. Then the answer is everything. Of a
// list the client knows it by the missing shardInfo, and of a watch it does not.
package cached
