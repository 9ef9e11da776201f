// Package store follows one resource upstream and serves it to any number of clients.
//
// It never knows a protocol or an operator's page. A stale list, a lost event, a lane that is not
// filled and a relist begin to be understood here.
//
//	seed       sibling replicas, whose caches fill those of a new one
//	reflector  one resource followed upstream: list, watch, and their failures
//	fresh      proofs that a cache is as new as a request
//	lane       one resource served from a cache: first list, history, use
//	watchers   the register of open watches
//	selfcheck  comparisons of lanes with kube-apiserver while they are served
//	registry   definitions of custom resources, APIServices and namespaces, followed
//	observe    rules whose reads are cached, and comparisons of those that are not
//	sharedlist lists that clients share who ask for the same at once
//	cached     one read answered from a lane, or passed through
//
// # Herds
//
// Thousands of clients may come at once, at a lane that is not filled or at a replica that has just
// started. kube-apiserver then gets one list for each lane, and never a request for each client
// that waits. Where a read passes through, and how many may, is one table (pass.go in package cached), and
// another for a lane that is being filled (filling in package lane). What a cache can't answer has no bound: that is
// known from the request itself, or from an answer that is remembered, so such a read waits for nothing, and reaches
// kube-apiserver as it would without the proxy.
//
// The proxy's own requests are shared or bounded as well: reviews (64 at a time), discovery (8),
// lists of lanes (reflector.ListsAtOnce), proofs and backfills (one for each lane at a time), and
// self-checks (one resource at a time).
//
// A read that waits holds no seat, and its connection no turn at the processors. A watch takes
// another turn behind its wait, because all that have waited for the same go on at the same instant.
// A waiting watch takes 10 KiB with its connection. The waiting reads are bounded for each lane and
// user, and --max-watches and --max-connections count them.
//
// Measured with the TestHerd of commit c792f78 on 2 cores, the clients included: 5,000 watches came
// at once to a replica that had just started, and a list that took 25.2 s. All were live 0.4 s after
// the list. kube-apiserver got one list, and four of the watches.
package store
