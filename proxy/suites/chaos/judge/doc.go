// Program judge lets etcd's robustness validators say whether clients of Kubernetes were told the
// truth. They are in go.etcd.io/etcd/tests/v3/robustness, and define what a watch is: ordered,
// unique, atomic, bookmarkable, resumable, reliable. Reads have to be linearizable, or as of the
// revision that they name. The fault suite in the directory above records what its clients were
// told, and the program puts that into the validators' form.
//
//	judge [-reports DIRECTORY] [-timeout 2m] RECORD
//
// It ends with 1 if there is a violation, and then names the directory of a report: what the
// clients were told, the validators' log, and the order of reads and writes as a page for a browser
// (history.html). It is a module of its own, because the validators bring all of etcd.
//
// # The record
//
// A record has one JSON object a line, packed with gzip. Times (at, until) are in nanoseconds of
// one clock that nothing sets. Values are digests of an object's content, without its
// resourceVersion.
//
//	run     the seed
//	change  a revision of etcd (rv), and when the suite's own watch of etcd brought it: the new
//	        version of an object (key, labels, half), no value if it was deleted, no key if no
//	        client follows it. Its values are of all content (value), of metadata (meta), and of
//	        these without metadata.managedFields (lean, scant), and of what the quiet view shows
//	        (quiet). half is 1 or 2, by the hash of the uid
//	write   an acknowledged write: when it was called and answered, and its revision. A write that
//	        may have found the object as it is has no call
//	read    a list or a get: scope, the resourceVersion that was asked for ("": as new as the
//	        question; "0": any) and how it had to match, the answer's (rv), objects
//	watch   the beginning of a stream: scope, the resourceVersion behind which it begins, or initial
//	event   type, key, rv, value. A bookmark that ends initial events is initial. relist is the list
//	        of watchfan's that explains a difference, with more if it is not the last
//	end     of a stream
//	done    the suite has finished
//
// # How it is judged
//
// Each selector, half and form has a world of its own (world.go): an etcd that stores what the
// selector selects, with the revisions of the real one. An object that begins to match is created there. An
// object that no longer matches is deleted. Namespaces and names are prefixes of keys, as in etcd. In the
// world of the quiet view an object is written only where the view shows another one, and an object that a
// client is shown is the latest that was written.
//
//	resourceVersion     revision; an object's is its mod revision
//	ADDED               put that creates
//	MODIFIED            put
//	DELETED             delete; the content is the previous value
//	bookmark            progress notification
//	watch behind rv     watch from rv + 1
//	list                range, as of a revision if it had to match exactly
//	initial events      range as of their bookmark, and a watch behind it
//
// First comes what was told, whenever that was: each read as of its revision, and all watches. What
// a client holds at the end of each stream is judged as such a read as well, as an informer's
// store. Then come the reads that may not be stale, with their times. A write that is not
// acknowledged to a client is nowhere in the record. Its revision is there, and its time is bounded
// by the writes before it and behind it, and by the suite's watch of etcd.
//
// # What the form cannot say
//
//   - If a list of watchfan's shows that history was lost, clients receive the differences
//     (fanout, Relists). etcd has nothing like it: removals would need revisions that nobody knows.
//     The watch ends before the differences, and what the client holds behind them has to be the
//     state as of the list. That these events are differences is the word of the suite's oracle.
//     If the differences break off, the client may hold what is gone until it lists again. That is
//     printed, and is no violation.
//   - The answer to a get has no revision. It gets the oldest one that is not too old, if there is
//     one that explains it. A get at 0 that finds nothing may be right at any time.
//   - A list or a get at 0 may be of any time, so only its content is judged.
//   - Clients are not told how often an object was written, nor of which revision a deleted
//     object's content is. Both come from the history.
//   - kube-apiserver writes one object in a revision and sends each event alone. Atomic says no
//     more than that no revision is split.
//   - An answer 410 ends a stream. Whether history was really compacted is not judged.
//   - The history is the suite's watch of etcd, which began before any compaction. The validators
//     can also read etcd's write-ahead log, but that reader forgets the leases of transactions, and
//     so the revisions in which kube-apiserver's leases expire.
//   - That an event comes at all, and with which bytes, the suite judges itself. So it does if a
//     client that asks for no managedFields gets them. Here its values are without them in any case.
//
// # Mutants
//
// TestMutants makes one mistake at a time in testdata/good.jsonl.gz, a part of a recorded run, and TestQuiet
// those of a view in a history of its own. Each has to be noticed by the right validator.
package main
