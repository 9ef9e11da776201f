// Package fanout is the watch cache of one resource, and the subscriptions that follow it. One
// writer brings each change once; every client gets what its selectors select, in order, from
// shared bytes that nobody copies. It knows no HTTP.
//
//	            Replace, Apply, Advance                     Subscribe, Start
//	reflector ──────────────────────────▶ Cache ◀──────────────────────────── clients' requests
//	                                        │
//	       ┌────────────────────────────────┼──────────────────────────┐
//	       ▼                                ▼                          ▼
//	Snapshot: the objects now        history: recent changes    index ─▶ group: one for each filter
//	(copy-on-write B-tree)           (ring, both versions)               frame ▶ frame ▶ frame ▶ tail
//	       │                                │                              ▲       ▲
//	       └──── initial events ────────────┴── replay ──▶ Subscription ───┘       │ each is at its own place
//	                                                       Subscription ───────────┘
//	                                                            │
//	                                                   shard of the Flusher ─▶ Sink: one write for a batch
//
// A change is put into the snapshot, the history and the list of each group whose filter it
// concerns, which wakes the shards of the [Flusher] that have members of those groups. A shard
// takes for each member what has come since it last wrote to it, as slices of shared frames, and
// hands them to the member's [Sink] in one call.
//
// A subscription begins in front of its group's list: with the objects of a snapshot, with a replay
// from the history, or with nothing. It is put at the list's tail at the same instant, under the
// cache's mutex, so nothing is missing and nothing is twice where one goes over into the other.
//
// # Ordering
//
//   - A subscription gets the changes that its filter selects in the order in which the writer
//     brought them, which is that of their resourceVersions; each once, and none is left out until
//     the stream ends. Changes may share a resourceVersion: deletions by the expiry of a lease, and
//     those that only a list has shown.
//   - Initial events come in the order of keys, all of them before the first change, with the end
//     bookmark in between.
//   - A bookmark stands behind every change up to its resourceVersion: [Cache.Progress] is stored
//     behind the appends to the lists, and loaded before a list is read to its end
//     (TestProgressBehindList, TestDelivery). What a relist takes away may come behind a bookmark
//     with the same resourceVersion.
//   - What is appended to a group after its cache was closed or reset: nothing. All its
//     subscriptions are ended, also those that were not started yet.
//   - Not ordered: one subscription against another, even of the same filter and client, and one
//     cache against another.
//   - After a relist, versions that no list has shown are missing, and the resourceVersions in
//     between can't be resumed from here: see [Cache.Replace].
//
// # Relists
//
// A list that stands in for changes that were missed is compared with what was shown before
// ([Cache.Replace]). Clients keep their streams, and are told the differences in two passes:
//
//   - First what is taken away from them, by key, as DELETED: objects that are gone; those that
//     have another uid than before, which were deleted and made again (no watch shows a MODIFIED
//     that changes the uid, and who keeps something for each object would mistake the new one for
//     the old); and, to clients whose selector does not select them any more, those that have
//     changed. All this is told with one resourceVersion that is not new to anybody: the one at
//     which the cache stood, or, if some clients began with a proof that nothing was different up
//     to a later one ([Proof]), that.
//   - Then the new versions, ADDED or MODIFIED, in the order of their own resourceVersions.
//
// So nothing is lost to a client that is cut off anywhere in between and goes on elsewhere, at
// kube-apiserver, at another replica or here after a restart, from the resourceVersion that it has
// seen last. Within the first pass that is one from before the missed changes, and it is told what
// really happened behind it: of some deletions again. Behind a version of the second pass it knows
// all that was taken away, and is told of every other object that was still to come, which has
// changed later than that. If deletions came last, with the list's resourceVersion, a client that
// was cut off in front of them would never hear of what had been deleted earlier than the version
// it has seen last (TestRelistCut). Until the list is in completely, progress stays where it was,
// and nobody is sent a bookmark.
//
// Here, a client that resumes from a resourceVersion in a relist gap is refused ([ErrRelistGap]).
// Where it saw that, there may have been more.
//
// In the history, a removal stands one behind the resourceVersion that it is told with
// ([Event].ResourceVersion): who knows the state as of that is sent it, also when it comes back
// with it.
//
// One thing remains. An object that left a selector and came back, both unseen, is still there for
// a client that is cut off in front of its new version. If that client goes on at another server,
// whose relist gap holds the coming back and a deletion behind it, it is not told of that. It takes
// two relists on two servers, and the resync of a list to mend it.
//
// An object in a list may have other bytes at the resourceVersion that is known, where another
// version of kube-apiserver has written it. No event tells that: its resourceVersion would be one
// that clients have seen. So the list's bytes take the place of what was held, the history is
// forgotten, since its events are in the old bytes, and all subscriptions end with what the caller
// says, which is 410 Expired ([ErrReencoded], [Cache.Reset]): an informer lists again, and hands
// what differs to its handlers as an update. A client that was cut off before comes back with its
// resourceVersion and goes on without the new bytes, as it does at kube-apiserver. Proofs of
// freshness compare versions and no bytes; what is compressed is known by the bytes themselves, and
// new ones are compressed anew.
//
// # Concurrency
//
// Cache: one goroutine writes (Apply, Replace, Reset); all else may be called from any.
// Subscription.End and Flusher.Start may be called from any goroutine. A Sink is called by one
// goroutine at a time.
//
// Who waits for whom:
//
//   - The writer waits for nobody who writes to a client. It takes the cache's mutex, and a shard's
//     for the time of an append to a slice.
//   - Readers of a list take no lock: see type group, whose invariants are proven there. Subscribe,
//     the replay of up to 64 changes, and a subscription's leaving take the cache's mutex; so they
//     wait while Replace compares a whole list, about half a microsecond for each object
//     (BenchmarkReplace), and three for each that has changed.
//   - A client that reads slowly is put aside until its Sink has drained. Nobody waits for it.
//   - A shard that needs something compressed which another is just compressing waits for it: 10 to
//     40 µs for an event, a millisecond for a run of initial events.
//   - The clients of one shard take turns. A turn is one write of at most 512 frames and about 256
//     KiB, or 1 MiB that has to be compressed first, about 5 ms; or the search among objects for
//     initial events, or among changes for a replay, that a selector selects: for a millisecond, or
//     20,000 of them, each with what its selector takes. Changes that share a resourceVersion are
//     not parted.
//
// Locks are taken in this order: the cache's mutex, then a shard's.
//
// # Goroutines
//
// [Flusher.Run] starts one for each shard, and returns when its context has ended and all of them
// have returned. [Flusher.Inspect] starts one for each shard, which returns when it does. Nothing
// else starts any: no client has one, whether it reads or not.
//
// # Why a list for each filter
//
// Other servers keep one ring of changes and let each client filter what it reads, or copy each
// change into a queue for each client. With a ring, 5,000 kubelets that each watch the Pods of
// their node all wake for every change, to throw away 4,999 of 5,000. With queues, each change is
// stored as often as it is delivered, and one bound must fit both a quick client and a slow one. A
// list for each filter costs an event what it concerns: an index finds the groups by the namespace,
// and in it by the name, field or label that their filters demand, on the version before and the
// one after, and a group appends one node however many members it has: two allocations for an
// event, for one client and for 2,000 of one filter (TestDeliveryAllocs).
//
// A list, and not a ring for each group, because nobody has to say how long it should be: nodes
// point forwards only, so what all members have passed is garbage, and what is kept is exactly what
// the slowest still needs. The price is a pointer to chase for each frame, about 5 ns where many
// are read at once (BenchmarkApply).
//
// Filters that no index can place, such as those with only !key or !=, are asked about each change
// of their namespace: about 20 ns each (BenchmarkDispatch).
//
// # What filters cost the writer
//
// Clients choose their selectors, and the writer asks them. So what it asks for one change is
// bounded. A filter's cost is its requirements, those that list many values a little more: they are
// compiled, and values are looked up. Names, one field's value, a namespace and everything cost
// nothing, for the index answers for them. All filters of one namespace that one version of an
// object can have to be asked cost at most 4,096 together, and so do those of watches of all
// namespaces; the memory of a cache's filters is bounded too. A filter that would exceed that has
// no subscription ([ErrCostly]), and the proxy passes its watch through. Each namespace has a bound
// of its own: one tenant's filters cost nothing to the changes of another's (TestScopeCost).
//
// With as much as there may be, one version of an object takes the writer 0.08 to 0.3 ms, the more
// the more of the filters select it (BenchmarkScope). A change has two versions, and two bounds
// that concern it: a millisecond at worst. So a tenant who makes 20 changes a second, to as many
// selectors as it likes, takes 2% of the writer of one resource, and N tenants N times that. Who
// makes changes faster does so at kube-apiserver first.
//
// Why does the writer ask, and not the shards? What a change costs there is the same, and it is
// paid by the same processors. Here it is bounded before a watch begins, and a list has each frame
// once for all shards, in order.
//
// # Why shards
//
// Three writers were compared. Each writes the same list to sockets on loopback: shards; a
// goroutine for each client, which waits for the list to grow; and loops with an epoll of their own
// that write to bare file descriptors. Events are pods of 3.7 KB. "all" is as many as the clients
// take. CPU is that of the writing process, kernel time included.
//
//	                       CPU µs/delivery                p99 ms
//	clients  events/s      goroutines  shards  epoll      goroutines  shards  epoll
//	100      50            9.4         8.8     8.4        1.3         1.1     1.3
//	100      all           0.90        0.84    0.67       3.3         3.9     2.7
//	1,000    50            8.7         7.0     7.8        11          8.2     11
//	1,000    all           1.09        0.96    0.79       21          20      17
//	5,000    10            8.9         7.5     6.4        43          38      36
//	5,000    50            5.4         5.0     4.9        79          77      74
//	5,000    all           0.93        1.02    0.81       73          64      74
//	1,000, of whom 100 do not read:
//	         50            9.2         7.1     7.7        10          7.8     9.0
//	         all           0.94        0.71    1.03       19          14      22
//	RSS/idle client        6.6 KiB     1.7 KiB 0.4 KiB
//
// (Commit 1d32f50 has the other two writers: go test -run '^$' -bench Writers -benchtime 1x
// ./fanout. One run on 2 quiet cores of an AMD EPYC, Linux 6.18, Go 1.26. In nine runs beside other
// work the ratios to the shards had the same medians within a tenth, and ranges from 0.9 to 1.5 for
// goroutines, from 0.7 to 1.2 for epoll.)
//
// A goroutine for each client costs up to a quarter more where events come one by one, because each
// has to be woken. It takes four times the memory. An epoll of our own gains up to a seventh over
// [syscall.RawConn], mostly where all is saturated and its batches are larger. It would lose what
// net.Conn has: TLS, deadlines, and connections that can go back to the HTTP server. Of a write
// that takes 7 µs, writev is nine tenths. So shards write, and an epoll beside them waits.
//
// # Compression
//
// A client that takes gzip is sent one member (RFC 1952) for as long as its watch lasts, of parts
// that are compressed once for all:
//
//	bookmark    x      x+1    x+2   …  bookmark    y      y+1  …
//	stored    ▐alone▌▐behind▌▐behind▌   stored   ▐alone▌▐behind▌
//	           └──── a stretch ────┘              └─ another
//
// There are three kinds of parts.
//
//   - An event is compressed behind the one before it in the group's list, so that what they have
//     in common, most of a pod, is sent only once. That serves all members that were sent the one
//     before just before. Who has just come, or was sent something of its own in between, gets the
//     event as it is compressed alone, in a form that all lists share. A stream of pods takes 7% of
//     its plain bytes behind each other, and 37% alone (BenchmarkGzipApply).
//   - Initial events and replays are compressed in runs of 64 to 256 KiB, shared by all who are
//     sent the same frames. The objects in a run decide where it ends, so a change makes a run or
//     two anew and leaves the rest; see type compressedRuns.
//   - What is one client's own, such as a bookmark, is stored.
//
// For its member a client has two words, and two more for the stretch of the list that it is on.
// The list counts: what a member's trailer must say of a stretch follows from what the list says of
// its two ends, so an event costs a client nothing but its slice: 20 to 40 ns, with the compression
// shared by 1,000, where a write of 3.5 KB less saves 3 µs. A list none of whose members takes gzip
// costs what it did.
//
// Why not a compressor for each list, which would see further back than one event? It would tie
// each client to all that the list has had since it came, where now one joins, or is given a
// bookmark, between any two events; and of pods, two events back take no less than one.
//
// Events of one list refer to each other, also those of different namespaces. Who may write
// objects, and sees the lengths of what another client is sent under TLS, can find out whether the
// objects next to its own have something in common with them. So it is with kube-apiserver's
// compressed lists.
//
// Why not zstd? Event by event, behind the one before, it takes 249 bytes where gzip takes 282, of
// 3,753, and about as long (BenchmarkZstd); and who watches Kubernetes asks for gzip: Go's net/http
// knows nothing else. A zstd stream for each client takes 149, but 9 MB and 8 µs for each of them.
//
// # Memory
//
// An idle subscription takes 307 bytes; one with a filter that no other has, 980 (BenchmarkIdle),
// and what its selector is long: a filter keeps one copy of it, and 16 bytes for each value
// (TestFilterSize). With gzip, it is 48 more, and a list holds each event's compressed forms with
// it. What its Sink takes comes on top. The frames are the objects' own bytes, once each, in the
// snapshot, in the history and in the lists. Besides what [Stats] counts, the history holds the
// version before each change, which at worst is as much again; a group holds its last frame; and a
// DELETED frame for objects that leave a selector is made and kept once somebody needs it.
// Snapshots share all but what has changed since: a client that is stuck within its initial events
// holds the objects of that time. Compressed runs hold the versions that are in them for a minute
// after they were last asked for, and at most 64 MiB of their own.
//
// # Slow clients
//
// A Sink writes what goes without waiting and keeps the rest, of one batch. Its subscription is
// then put aside at its place in the list. One that is more than [Limits].ClientFrames or
// ClientBytes behind its group while its client does not read is ended with [Evicted], within a
// tenth of a second; bytes are those of the frames, which is what is held for it, whether it gets
// them compressed or not. It lets go of its place: the stream ends cleanly between two frames if
// the client takes the rest of that batch within five seconds, and is cut off if not. It has lost
// nothing that it can't resume from the last resourceVersion that it has seen, as with
// kube-apiserver (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go).
//
// # Endings
//
// Most endings come at once, between two frames; frames that are not written yet are left out. A
// graceful ending ([Ending].Graceful) comes when the client has been sent all that there is, and a
// bookmark if it takes bookmarks. From there the client can resume at another process at no cost. A
// graceful ending waits for a slow client within its bounds; any other ending comes before it.
//
// # Limits
//
//   - Timeouts, bookmarks and evictions keep time to a tenth of a second.
//   - An object's fields must have been scanned with the field list that filters were made with.
//   - The expiry of a lease deletes several objects at one resourceVersion, which only the events
//     resource knows. A subscription that begins, or a bookmark that is sent, between two of them
//     takes the second for known.
//   - History is bounded by [Limits] and grows only while its oldest change is younger than 75
//     seconds.
package fanout
