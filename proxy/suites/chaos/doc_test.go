// Package chaos_test injects faults between watchfan, kube-apiserver and etcd while dozens of
// clients follow two resources, and checks everything that the clients receive against etcd's own
// history.
//
//	make chaos                                     five minutes of faults
//	make chaos CHAOS_DURATION=1h CHAOS_SEED=17     an hour of the faults that seed 17 draws
//	go test ./proxy/suites/chaos -v -duration=60s -seed=5 -only=network
//
// -only injects only the faults whose names contain the text. A link that can be cut needs root and
// the program ip; a clock that jumps needs Linux on amd64; a sibling needs a kube-apiserver with
// watch-lists. Faults that are impossible here are reported, and the rest goes on. DEVCLUSTER_BIN and
// DEVCLUSTER_ARGS choose the kube-apiserver, as for package e2e.
//
// # Parts
//
//	writers ─▶ kube-apiserver ◀── relay ◀══ link ══ watchfan ◀── clients ──────────▶ oracle
//	                │                                  ▲◀─ relay ◀─ over HTTP/2        ▲
//	               etcd ───────────────── truth: one watch of all keys ────────────────┘
//
// Another watchfan, straight at kube-apiserver, is a sibling from which watchfan is filled when it
// starts again. The sibling answers through a server that can lie (sibling_test.go).
//
// The suite (suite_test.go, chaos_test.go) starts everything, injects one fault after the other
// (fault_test.go) and waits after each until every steady watcher has received a new write.
//
// The truth (truth_test.go) is etcd's history and not what kube-apiserver acknowledged: a write
// without an answer may or may not have happened, and only etcd knows. The truth is one watch of
// etcd from its first revision on, so that no compaction can hurt it.
//
// The clients are watchers (watcher_test.go) with every filter, form and manner of reading,
// readers that get and list (reader_test.go), and client-go's informers in three releases
// (informer_test.go). Some ask for objects without metadata.managedFields (less_test.go), and some
// pairs of watchers for one half of the objects each (half_test.go). Some are in a quiet view
// (quiet_test.go). They speak HTTP/1.1, each
// over its own connection, or HTTP/2: watches that are read, and watches that are not, share
// connections there. Informers over TLS choose HTTP/2 by themselves. Some watches are messages of
// WebSockets. Some watchers go to and fro between watchfan and its sibling, and resume there what
// they began here. Some watchers are connected straight to kube-apiserver. They show that the
// oracle is right, and which bytes a version has.
//
// The oracle (oracle_test.go) says of each event whether it is the next one.
//
// With -record, the suite writes down everything that clients are told (record_test.go). make chaos
// does so, and lets etcd's robustness validators judge it: the program in judge, which says what they
// check. They know nothing of the oracle, except that it tells them which events are the differences
// of a list.
//
// # Checks
//
//   - Watches: each event is the next one of etcd's history for the selector, with its type as the
//     selector sees it. None is missing and none comes twice, not even across the ends of streams.
//     Its object is what etcd stores, and its bytes are those that kube-apiserver sent for that
//     version in that form. A bookmark comes behind every event up to its resourceVersion.
//   - Without metadata.managedFields: the same, less the field. Nothing in an answer says that it is
//     without. kube-apiserver ignores the parameter drop, so an answer that passes through has the
//     field in each object. Such an answer names a flow schema in its header, and no other does. The
//     handshake of a WebSocket has no such header, so there the first object decides for all.
//   - Halves: exactly the events of the objects in whose range the hash of the uid is, which is
//     computed here. No request for a half passes through to a kube-apiserver that would send both,
//     except while watchfan can't ask kube-apiserver about the resource or the client: see suite.kept.
//   - In the quiet view: exactly the changes that it shows. An object that enters its selection is ADDED, and
//     one that leaves it DELETED. A change in which its form of an object is the same, but for the
//     resourceVersion, must not come, so a client may hold an older resourceVersion, until it lists. All
//     else is as without: order, bookmarks behind every event, resumes, lists with current
//     resourceVersions, the differences of lists, and in the end the view of what etcd has.
//   - Lists, pages together, and initial events: exactly the state as of their resourceVersion.
//   - Consistent reads and watch-lists: at least as new as the last write that was acknowledged
//     before the request.
//   - In the end every watcher has received everything, and client-go's informers hold what new
//     informers hold that are connected to kube-apiserver. Informers also compare their initial state
//     with a list of exactly that version, and panic if it differs (proxytest.Detectors).
//   - watchfan ends with 0 at SIGTERM, and never by itself. Its log has no data race and no panic.
//
// # Exceptions
//
//   - If watchfan's log says that a lane listed again as of R, the clients of that lane may receive
//     the differences between what they know and the state as of R instead of each change up to R:
//     all differences, in order, and nothing else (TestOracleLeaps). Removals come first, with a
//     resourceVersion up to which the client's knowledge was true.
//     If every change has been undone by R, there are none (TestOracleSkips).
//   - A client that resumes at another watchfan from the resourceVersion of such a difference
//     receives what happened since, as it would from kube-apiserver: also about objects that it has
//     never seen, and once more about objects that were removed.
//   - While kube-apiserver is away or starts, requests may fail for up to two minutes, but not as
//     if the requests were wrong.
//
// # Soak
//
// TestSoak (soak_test.go, soak_clients_test.go) asks whether watchfan stays as it is. It has the same
// parts, clients and checks, without the informers. The README says what it does and why its bounds are
// what they are.
//
// # Repeating a run
//
// The first and the last line of the log have the seed. It draws the kinds of faults, their order,
// their durations and the pauses between them; each of the 22 kinds comes once before any
// comes again. It also draws what writers and clients do, but not how all of that meets in time. A
// mistake that depends on such a meeting may need several runs.
//
// # Failures
//
//   - "15:04:05 after 42s: watcher 3 (…): …" is a violation, and "recovery from …" a client that did not
//     recover from a fault within two minutes. The fault before it in the log is the likely cause.
//   - "VIOLATION: …" is one that etcd's validators see in the record. Its report is in the directory that
//     is named.
//   - "fault 7, …" and an error: the fault could not be injected or proved. This says nothing about
//     watchfan. Nor does "this is too little to show anything".
//
// TestOracleNotices and its siblings give the oracle streams with one mistake each. The whole suite can be
// tried with a mutant of watchfan: change a line, build it somewhere else, and name it in WATCHFAN_BIN.
// These were noticed: a thousandth event is left out, a replay repeats an event, a bookmark is one too high,
// the first difference of a list is skipped, nothing is proved fresh.
package chaos_test
