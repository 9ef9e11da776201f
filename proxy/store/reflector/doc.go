// Package reflector follows one resource upstream: it lists the resource, watches it, and keeps a
// [fanout.Cache] up to date. The streams of the cache's clients stay open when upstream fails; the
// exceptions are below.
//
//	reflector.go   the loop: follow, see what came of it, wait, follow again
//	list.go        a list or initial events fill the cache, for the first time or again
//	seed.go        a sibling replica fills the cache for the first time, and not a list
//	watch.go       a watch brings the cache up to date
//	tables.go      a collection in Tables is watched and never listed
//	watchdog.go    a watch that hangs is broken, also by a reader
//	reencoding.go  upstream writes the same objects in other bytes
//	collection.go  the requests about one resource
//	source.go      what all reflectors share: turns to list, the connection
//	errors.go      what upstream's errors mean
//	health.go      how the upstream watch is doing
//
// It knows the upstream, the sibling replicas (package seed) and the cache. It does not know who
// reads the cache, how readers wait for the first list, what is proved about the cache, and when
// following begins. Packages fresh and lane know that. lane hands the reflector an interface that is told
// about the first list ([Filling]), and two functions: whether memory is full, and whether the
// resource has been redefined. Both call [Reflector.BreakWatch] and [Reflector.RequireRelist] when
// the watch or the cache is known to be wrong, and send requests of their own with [Collection].
//
// # When upstream fails
//
//	the connection breaks          at once  resumed from the last resourceVersion
//	the link is dead, or kube-     10 s     the same; see package upstream
//	apiserver does not run
//	a watch hangs, its connection  150 s    the same, see watchdog; sooner if a client's read
//	does not                                shows changes that the watch did not bring
//	the history is gone (410)      at once  one list, of which the cache takes the differences; at
//	                                        most ListsAtOnce resources at a time
//	a kube-apiserver is behind     10 s     left for another, over a new connection; its lists are
//	                                        not believed
//	the proxy's right is gone      5 min    the lane ends, with its clients' watches: they read at
//	(403), or its credential (401)          kube-apiserver, which goes on without it
//	etcd was restored              at once  every client of the resource gets 410, if etcd itself
//	                                        is at an older resourceVersion
//
// A kube-apiserver that has come back may write the same objects in other bytes. Then every client
// of the resource gets 410 and lists again; see reencoding.go.
//
// A restored etcd may have passed the cache's resourceVersion before the reflector sees it again.
// Then it continues the watch as if nothing had happened, for every client of kube-apiserver. Two
// options of etcdutl prevent that: --bump-revision and --mark-compacted. A proof of freshness
// (package lane) notices it, if it lists the collection and the cache had other objects at that
// resourceVersion. Then the reflector lists the collection.
package reflector
