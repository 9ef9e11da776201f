// Package chaos_test has dozens of clients of every kind follow two resources through the built watchfan, between a real kube-apiserver and
// etcd and a network of its own, injects faults, and holds all that any client is told against etcd's own history.
//
//	make chaos                                     five minutes of faults
//	make chaos CHAOS_DURATION=1h CHAOS_SEED=17     an hour of those that seed 17 draws
//
// # Parts
//
//	writers ─▶ kube-apiserver ◀── relay ◀══ link ══ watchfan ◀── clients ──▶ oracle
//	                │                                                          ▲
//	               etcd ───────────────── truth: one watch of all keys ────────┘
//
// The truth (truth_test.go) is read from etcd and not from what kube-apiserver acknowledges: a write that got no answer has happened or has not,
// and etcd knows. It is watched from the first revision on, all the time, so compaction does not hurt it.
//
// Clients straight at kube-apiserver are held against the same oracle. They show that it is right, and what bytes a version has.
//
// # What is checked
//
//   - Watches: each event is the next of those that etcd's history has for the selector, with its type as the selector sees it; none is missing,
//     none comes twice, not even across the ends of streams; its object is what etcd stores, and its bytes are those that kube-apiserver
//     sent for that version in that form. A bookmark is behind every event up to it.
//   - Lists, pages together, and initial events: exactly the state as of their resourceVersion.
//   - Consistent reads, and watch-lists: not older than the last write that was acknowledged before them.
//   - In the end every watcher has been told everything, and client-go's informers, of three releases, hold what new ones hold that ask
//     kube-apiserver itself.
//   - watchfan ends when it is told to, with 0 at SIGTERM, and not otherwise; its log has no data race and no panic.
//
// # What is forgiven
//
//   - Where watchfan's log says that a lane listed again, as of R, that lane's clients may be told the differences between what they know and
//     the state as of R instead of each change up to R: all of them, in order, and nothing else (TestOracleLeaps). What goes away comes first, with
//     a resourceVersion until which what they know has been true.
//   - Who resumes at another watchfan from the resourceVersion of one of these differences is told what happened since, as by kube-apiserver:
//     also of objects that it was never told of, and once more of what has gone away.
//   - While kube-apiserver is away or begins, requests may be refused, in any way but as if they were wrong; at most for two minutes.
//
// There are no other clocks. What a machine cannot have (a link that can be cut takes root and the program ip; a clock that jumps, linux on
// amd64) is reported as impossible, and the rest goes on.
//
// # Seeds
//
// A seed draws the kinds of faults, their order, and how long they and the pauses between them are; each kind comes once in every fifteen.
// What the writers and clients do is drawn from it too, but not how all of that meets.
//
// # That it can fail
//
// TestOracleNotices gives the oracle streams with one mistake each. The whole suite can be tried with a mutant of watchfan: change a line, build
// it somewhere else, and give it as WATCHFAN_BIN:
//
//	go build -o /somewhere/mutant . && git checkout .
//	DEVCLUSTER_BIN=$PWD/bin/devcluster WATCHFAN_BIN=/somewhere/mutant go test -v ./proxy/chaos -duration=2m
//
// All of these were noticed, so long after the beginning, 15 seconds of which are the cluster's start and the builds of the informers; -only
// had nothing injected but what is named:
//
//	one event in a thousand is left out (Cache.Apply)               47 s   clients stalled; as soon as the thousandth was due
//	a replay repeats an event (Cache.Subscribe)                     25 s   connections reset
//	a bookmark is one too high (Subscription.bookmark)              34 s   clients stalled; the first ones come then
//	the first difference of a list is skipped (Cache.diffLocked)    19 s   history forgotten
//	nothing is proved fresh (prover.prove)                          17 s   network slow; in 25 s without that, it was not noticed
package chaos_test
