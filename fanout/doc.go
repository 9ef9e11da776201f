// Package fanout is the watch cache of one resource, and the subscriptions that follow it. One
// writer applies each change once. Every client gets the changes that its filter selects, in order,
// from shared bytes that are never copied. The package knows nothing about HTTP.
//
//	            Replace, Apply, Advance                     Subscribe, Start
//	reflector ──────────────────────────▶ Cache ◀──────────────────────────── clients' requests
//	                                        │
//	       ┌────────────────────────────────┼──────────────────────────┐
//	       ▼                                ▼                          ▼
//	Snapshot: the objects now        history: recent changes    index ─▶ group: one for each filter
//	(copy-on-write B-tree)           (both versions)                     frame ▶ frame ▶ frame ▶ tail
//	       │                                │                              ▲       ▲
//	       └──── initial events ────────────┴── replay ──▶ Subscription ───┘       │ each at its own place
//	                                                       Subscription ───────────┘
//	                                                            │
//	                                                   shard of the Flusher ─▶ Sink: one write for a batch
//
// A change is what happened to an object. An event is what one client is sent of it. A change goes
// into the snapshot, into the history, and into the list of each group whose filter it concerns.
// That wakes the shards of the [Flusher] that have members of those groups. For each member, a
// shard takes the frames that were appended since its last write to that member. It hands them to
// the member's [Sink] in one call, as slices of shared frames. Sinks may share a connection, their
// [Carrier].
//
// A subscription starts with a prelude: the objects of a snapshot, a replay from the history, or
// nothing. After the prelude it reads its group's list. Subscribe chooses the prelude and notes the
// list's tail under the same lock of the cache's mutex. So no change is missing or sent twice where
// the prelude ends and the list begins.
//
// A cache may also keep events and no objects: see [NewEventsOnly].
//
// # Ordering
//
//   - A subscription gets the changes that its filter selects in the order in which the writer
//     applied them, which is the order of their resourceVersions. Each is sent once, and none is
//     left out until the stream ends. Changes may share a resourceVersion: deletions by the expiry
//     of a lease do, and so do deletions that only a list has shown.
//   - Initial events come in the order of their keys, all of them before the first change. The
//     bookmark that ends them comes in between.
//   - A bookmark is sent after every change up to its resourceVersion. To ensure that,
//     [Cache.Progress] is stored after the appends to the lists, and loaded before a list is read
//     to its end (TestReaderNotAhead, TestDelivery). The removals of a relist may be sent after
//     a bookmark with the same resourceVersion.
//   - After its cache was closed or reset, nothing is appended to a group. All its subscriptions
//     end, including those that were not started yet. None is sent a bookmark with what the cache has
//     reached since (TestBookmarkAfterReset).
//   - There is no order between two subscriptions, even of the same filter and client, nor between
//     two caches.
//   - After a relist, versions that no list has shown are missing.
//
// # Relists
//
// A list that replaces missed changes is compared with what the cache held ([Cache.Replace]).
// Clients keep their streams and are sent the differences in two passes:
//
//   - First the removals, as DELETED, in the order of their keys. A client is sent a removal for
//     each object that is gone, that has another uid, or that its selector no longer selects. An
//     object with another uid was deleted and created again. No watch shows that as a MODIFIED, and
//     a client that keeps something for each object would take the new object for the old one. All
//     removals have one resourceVersion, and no client here has been sent a later one: the cache's
//     progress, or the later resourceVersion of a [Proof] that some clients began with.
//   - Then the new versions, as ADDED or MODIFIED, in the order of their own resourceVersions.
//
// So a client that is cut off at any point of this loses nothing when it resumes from the last
// resourceVersion that it has seen, whether at kube-apiserver, at another replica, or here after a
// restart. During the first pass that resourceVersion is from before the missed changes. The other
// server sends everything that really happened after it, and so repeats some deletions. During the
// second pass the client has seen all removals, and every object whose new version it has not seen
// changed later than the resourceVersion from which it resumes. If the deletions came last, with
// the list's resourceVersion, a client that was cut off before them would never learn of deletions
// that are older than the last version it has seen (TestRelistCut). Progress stays where it was
// until the whole list is in, and nobody is sent a bookmark meanwhile.
//
// In the history, a removal stands one resourceVersion after the one that it is sent with (the
// ResourceVersion of type change). So a client that resumes from the resourceVersion of the
// removals is sent all of them. A client that resumes from within the relist gap is refused
// ([ErrRelistGap]): the server where it saw that resourceVersion may have shown it changes that are
// missing here.
//
// One weakness remains. Suppose an object leaves a selector and comes back, both during the gap,
// and a client is cut off before the object's new version. The client still has the object. If it
// resumes at another server with a relist gap of its own, which skips both the return and a later
// deletion, it never learns of the deletion. The client's next list repairs it.
//
// A list may show an object with the resourceVersion that the cache holds, but with other bytes,
// after another version of kube-apiserver wrote it. No event can say so, because clients have
// already seen its resourceVersion. So the caller resets the cache, and all subscriptions end with
// 410 Expired ([ErrReencoded]). An informer then lists again and passes the differences to its
// handlers as updates. A client that was cut off earlier resumes without the new bytes, as it does
// at kube-apiserver. Proofs of freshness compare versions and not bytes.
//
// # Concurrency
//
// One goroutine writes to a Cache (Apply, Replace, Reset). All its other methods may be called from
// any goroutine, as may Subscription.End and Flusher.Start. A Sink is called by one goroutine at a
// time. These waits exist:
//
//   - The writer never waits for a client. It takes the cache's mutex, and a shard's mutex for as long
//     as an append to a slice takes. With nothing else at hand it writes to a few clients itself, if their
//     shard rests ([Cache.ApplyLast]): that a shard wakes takes longer than a write.
//   - Readers of a list take no lock: see type group for the invariants. Subscribe, a replay's step
//     of up to 64 changes, and the removal of an ended subscription take the cache's mutex. So they
//     wait while Replace compares a whole list, which takes about 0.5 µs for each object
//     (BenchmarkReplace), and 3 µs for each that has changed.
//   - A subscription whose client reads slowly is parked until its Sink has drained. Nobody waits
//     for it.
//   - If two shards need the same compressed bytes at once, one compresses and the other waits: 10
//     to 40 µs for an event, 1 ms for a run of initial events.
//   - The subscriptions of one shard take turns. A turn is one write, of about 64 KiB or of what is
//     compressed from 1 MiB in 5 ms, or a part of the search for a prelude, of 1 ms.
//   - Preludes make way for events. A shard that has got events while it serves preludes sends the
//     events after one turn, until it owes the preludes 50 ms. While clients are sent changes, half
//     of the shards serve preludes at a time. Go runs goroutines first come, first served, and looks
//     at the network only every 10 ms while all processors are busy. If all of them served preludes,
//     an event would wait for 20 ms and more before anybody here has read it from upstream.
//
// Locks are taken in this order: the cache's mutex, then a shard's. The mutexes of the demand for
// indexes and of the [Indexer] come last.
//
// [Flusher.Run] starts one goroutine for each shard, and returns when its context has ended and all
// of them have returned. [Indexer.Run] builds indexes on the goroutine of its caller.
// [Flusher.Inspect] starts one for each shard that it asks, and returns after they have. Nothing
// else starts a goroutine. No client has one, whether it reads or not.
//
// # Indexes
//
// Each kubelet begins with the Pods of its node. Without an index, that is a search through all
// Pods, for each of thousands of kubelets that come back at the same time. With one, initial
// events, lists, pages and replays take the time of what they find:
//
//	filter                            looks at
//	namespace and name                one object
//	=, in (of at most 16 values)      objects with a value, of the filter's namespace if it has one;
//	                                  of several such terms, those of the rarest
//	the same, in a replay             changes of objects that had a value before or after
//	!=, notin, !key, key, <, >, and   what equal filters select, if that is at most an eighth of
//	hash ranges                       what they look at
//	anything else, or no index yet    all objects of the namespace
//
// An index is a second B-tree with the same objects, in the order of an attribute's values and,
// within a value, of the objects' keys. The attribute is a label, a selectable field or the name, or
// else that a filter selects the object. So clients are sent the same bytes as without the index. The
// trees of a collection are changed and cloned together, so each snapshot has the indexes of its own
// instant. The history has the numbers of its own changes with each value.
//
// Clients decide which indexes there are. A search adds up what it looks at in vain, for each
// attribute that would have spared it that. Once that is twice the number of objects, the [Indexer]
// builds the index from a snapshot, in steps, and applies the changes since. Searches that began
// before use it from their next turn on. An index is given up after five minutes without a search,
// and when memory is short ([Indexer.Shed]). It takes 40 bytes for each object that has the attribute
// (TestIndexMemory), and in the history 16 bytes for a change, and 96 for a value. Number and memory
// are bounded.
//
// With 100,000 objects, a client's 20 initial events take 9 µs by an indexed field and 10 ms without
// the index (BenchmarkSearch). Building an index takes 0.6 µs for each object (BenchmarkIndexBuild). A
// change costs the writer 0.5 to 1.5 µs more for each index, and 4 µs more if somebody has joined since
// the change before (BenchmarkIndexedApply).
// (But for BenchmarkApply, the benchmarks that this package's comments name are in commit 4ba589e.)
//
// # Why a list for each filter
//
// With one ring of changes that each client filters, 5,000 kubelets that each watch the Pods of their
// node all wake for every change, and 4,999 of them throw it away. With a queue for each client, each
// change is stored as often as it is delivered, and one bound must fit both fast and slow clients.
//
// With a list for each filter, an event costs only what it concerns: see type index. A group appends
// one node however many members it has. An event takes two allocations, for one client and for 2,000
// clients of one filter (TestDeliveryAllocs). Nodes only point forwards, so the list needs no fixed
// length, and holds exactly what its slowest member still needs. The price is one pointer to follow
// for each frame, about 5 ns where many are read at once (BenchmarkApply).
//
// Clients choose their selectors, and the writer evaluates those that the index can't place. So the
// work for one change is bounded, and the memory of a cache's filters is too. Subscribe refuses a
// filter that would exceed a bound ([ErrCostly]), and the proxy passes its watch through. A filter's
// cost is the number of its requirements, and a little more if it lists many values. The bound holds
// for the filters of each namespace, and for those of all namespaces, so one tenant's filters cost
// nothing for the changes of another tenant (TestScopeCost). At the bound, a change takes the writer
// 1 ms at worst (BenchmarkScope).
//
// # Why shards
//
// A goroutine for each client has to be woken where events come one by one: with 1,000 clients and 50
// events a second, a delivery takes a quarter more CPU time, and an idle client 6.6 KiB in place of 1.7.
// Our own epoll that writes to bare file descriptors gains up to a seventh over [syscall.RawConn],
// mostly under saturation, and would lose what net.Conn provides: TLS, deadlines, and connections that
// return to the HTTP server after the watch (commit 1d32f50: go test -run '^$' -bench Writers
// -benchtime 1x ./fanout). So shards write, and an epoll beside them waits.
//
// # Compression
//
// A client that takes gzip is sent one member (RFC 1952) for the whole watch. Its parts are
// compressed once for all clients:
//
//		bookmark    x      x+1    x+2   …  bookmark    y      y+1  …
//		stored    ▐alone ▌▐after ▌▐after ▌   stored   ▐alone ▌▐after ▌
//		           └──── a stretch ────┘              └─ another
//
//	  - An event is compressed after the previous event of the group's list: it refers to that
//	    event's bytes. So what the two have in common, most of a pod, is sent only once. A member that
//	    has just joined, or was sent something of its own in between, gets the event compressed alone,
//	    in a form that all lists share. A stream of pods takes 7% of its plain bytes when each is
//	    compressed after the previous one, and 37% alone (BenchmarkGzipApply).
//	  - Initial events and replays are compressed in runs of 64 to 256 KiB: see type compressedRuns.
//	  - What only one client is sent, such as a bookmark, is stored uncompressed.
//
// The list keeps the checksums: the trailer's share of a stretch follows from the checksums at its
// two ends. So an event costs a client nothing but its slice, and a list whose members don't take
// gzip costs nothing extra.
//
// Events of one list refer to each other, even those of different namespaces. So a client that may
// write objects, and that can see the lengths of another client's TLS records, can find out whether
// neighbouring objects have something in common with its own. kube-apiserver's compressed lists
// have the same property.
//
// Kubernetes clients ask for gzip. zstd would take an eighth less for an event (BenchmarkZstd of commit
// c792f78).
//
// # Trimmed objects
//
// A client may be sent its objects without some of their fields: see [Variant]. Clients with the same
// Trim have groups of their own. Everything else is shared with the other clients: the snapshot, the
// history, the indexes, and the bytes after the last of the fields, where most of a lean object is.
// An object makes its trimmed frame for the first client that is sent it, by copying the bytes before
// that, and keeps it ([framing.Object.TrimmedFrame]). So its address identifies it, and clients with
// the same Trim share compressed events and runs like others. A lane without such clients pays
// nothing.
//
// While all watches are lean, objects are packed ([framing.Packing], [Indexer]): they take three
// quarters of the memory. A whole list, and a whole watch from before, have each object made whole for them
// alone, in a few µs. A whole watch is served whole versions from its first event on, and the
// objects are whole again within half a minute.
//
// # Views
//
// A view may select objects by what they contain, and be quiet ([framing.Trim]). Its clients' filters
// select in its name too ([Filter.In]), so all that is said of filters holds: an object that enters is
// ADDED, and the history, whether the cache's own or fetched, says what a client that resumes has to be
// told. An object keeps the verdict and its form, so both are found out once for each version. In a
// quiet view a new version is sent unless its form is the same but for the resourceVersion. So a client
// may hold an older resourceVersion of an object than its watch has passed, and bookmarks and resumes
// are what they always are (TestViews).
//
// A view may select namespaces by labels. No event of the collection says that those have changed. If
// objects enter or leave a view by that, its subscriptions end as [Expired], and nobody resumes from
// before ([ErrOutdated]): [Cache.SetNamespaces]. At two caches that learn of it at different times, a
// client may resume at one from what it has been sent by the other meanwhile. Its next list repairs that.
//
// # Memory
//
// An idle subscription takes 179 bytes, or 854 with a filter that no other subscription has
// (BenchmarkIdle), plus the length of its selector: a filter keeps one copy of it, and 16 bytes for
// each value (TestFilterSize). Gzip adds 48 bytes, and a list then holds each event's compressed
// forms too. A Sink's own memory comes on top.
//
// Frames are the objects' own bytes. They are held once, for the snapshot, the history and the
// lists together. Some memory is not counted in [Stats]:
//
//   - The history holds the version before each change, which at worst is as much again.
//   - A group holds its last frame.
//   - The DELETED frame for an object that leaves a selector is built when it is first needed, and
//     kept.
//   - Snapshots share everything but what has changed since. A client that is stuck within its
//     initial events holds the objects of that time that its filter selects, and no others.
//   - A compressed run holds the versions in it, until nobody has asked for the run for a minute.
//     All runs of a Flusher hold at most 64 MiB of compressed bytes.
//
// # Slow clients
//
// A Sink writes as much as it can without waiting, and keeps the rest of the batch. Its
// subscription is then parked at its place in the list. If that falls behind the list's end by more
// than its bounds ([Limits]), the subscription gives it up and ends as [Evicted]. The stream ends
// cleanly between two frames if the client takes the rest of its batch within five seconds, and is
// cut off otherwise. The client can resume from the last resourceVersion that it has seen, as with
// kube-apiserver (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go).
//
// What a parked subscription keeps is counted each second, and its sink may refuse it ([Keeper]);
// then it is evicted too. Within its initial events it is also evicted when it has taken nothing for
// a minute. It can't resume then, as it has no resourceVersion yet.
//
// # Endings
//
// Most endings take effect at once, between two frames. Frames that are not written yet are
// dropped. A graceful ending ([Ending].Graceful) first sends the client everything that there is
// for it at that moment, and waits for a slow client within its bounds. Any other ending overtakes it.
// At the maximum age of a connection it waits for a minute at most for a client that takes nothing: that
// is the subscription's timeout, and there is no other.
//
// # Limits
//
//   - Timeouts, bookmarks and evictions are accurate to 0.1 s.
//   - An object's fields must have been scanned with the field list that its filters were made
//     with.
//   - The expiry of a lease deletes several objects at one resourceVersion. Only the events
//     resource has leases. A subscription that begins between two such deletions, or is sent a
//     bookmark there, does not get the second.
package fanout
