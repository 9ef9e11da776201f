// Package proxytest is for tests of watchfan: a scripted kube-apiserver for the faults that no real
// one makes on demand, a watch client that records what it gets, and for tests of the built program
// the processes: a real kube-apiserver among them.
//
// # The server
//
// [Server] keeps a few collections in memory under one resourceVersion and serves them as
// kube-apiserver does: discovery, consistent and paginated lists, watches from a resourceVersion,
// WatchLists with their end bookmark, the bookmark of a short watch, SelfSubjectAccessReviews. What
// a test wants to go wrong it says in one of two ways:
//
//	up.On(proxytest.List, 1, func(c *proxytest.Call) { c.Fail(503, "", "busy", 2) })   // the next list
//	up.Stream(proxytest.Watch).Send("garbage\n")                                       // an open watch
//
// Every request is noted by [Kind], so that a test can prove that its fault happened and count what
// it led to.
//
// # The client
//
// [Open] starts a watch and returns a [Watcher], which parses no more of each event than a test
// asks about and keeps the bytes.
//
// # Processes
//
// [StartCluster] starts a real etcd and kube-apiserver, [StartProcess] any program; [Binary] finds
// those that make builds. A [Process] that ends before it is ready, or does not end when it is told
// to, is an error that shows what it has printed. None outlives the tests on Linux, not even killed
// ones. [StartWatchfan] starts the built watchfan.
//
// # Attacks
//
// [Attacks] is a table of malformed requests, each with what watchfan and kube-apiserver answer to
// it.
package proxytest
