// Package cached answers gets, lists and watches from lanes. [Reads.Serve] decides whether a request
// is answered here or passed through. In any doubt it is passed through.
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
package cached
