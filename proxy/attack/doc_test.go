// Package attack_test has 60 attackers of all kinds attack the built watchfan beside 200 honest clients, in front of a real kube-apiserver and etcd, and
// holds what the honest clients get against what they got before the attack.
//
//	make attack                                       half a minute of attacks
//	make attack ATTACK_DURATION=1h ATTACK_SEED=17     an hour of those that seed 17 draws
//
// # Parts
//
//	                            ┌── 200 honest clients
//	kube-apiserver ◀═ watchfan ◀┤
//	      ▲                     └── 60 attackers: a process of its own, of the lowest priority
//	      └── the steady writer: 30 updates a second, each with the next number of its object
//
// Honest clients (crowd_test.go, honest_test.go) are users of eight tenants, each of which may read its own namespace alone, and three controllers that may
// read everything. They come with tokens, with certificates, and one in ten by the insecure port. 50 watch and resume, 60 watch with initial events in
// protobuf, 30 list and watch again and again as informers that are restarted, a quarter of all of these with gzip; 40 get and list; 20 send bodies of 200 KB.
//
// Attackers (attacker_test.go) take up one kind of attack after the other, each for 5 to 20 seconds. kinds_test.go has the requests, connections_test.go
// what is done to connections. Each kind is there from the first second on, and which come next is drawn. Rates are bounded, and so is the number of
// attackers whose attack would only overload kube-apiserver. An attacker has a tenant of its own, or no valid token, or the rights of a crawler.
//
// # Rates
//
// -rate is .3 by default: attackers make .3 of the requests that kinds_test.go has. At 1, what kube-apiserver itself has to do for
// attackers takes all that two processors have, and everybody waits for everybody. Seed 5, 20 seconds, p99 in the attack as a
// multiple of that in the quiet phase (2 cores of an AMD EPYC; one run each, beside other work):
//
//	                          -rate=1   -rate=1 -target=kube-apiserver   -rate=.5   -rate=.3
//	event                     14        207                              10         2.5
//	get, resourceVersion=0    13        53                               4.6        1.3
//	list, resourceVersion=0   13        118                              4.6        1.3
//	update at kube-apiserver  5.4       95                               6.3        1.9
//
// # Phases
//
// The quiet phase is a quarter of the attack's duration, from 15 seconds to two minutes. All honest clients are there in it, and loops of the attackers'
// priority keep the processors busy: what attackers take from others by shared caches and cores is no fault of the server, and is in both phases.
// Then the attackers attack; then they leave, and the server has to come back to what it used before.
//
// # What is checked
//
//   - Watches: each object's updates come one by one; none is missing, none comes twice or late, not even across the ends of streams that are resumed.
//     In the end every watcher has been told everything.
//   - Consistent reads, and initial events: not older than any update that was acknowledged before the request.
//   - Nobody, honest or not, is shown an object that belongs to another tenant. No page of another site is answered by the insecure port.
//   - Honest requests are answered. A 429 with a Retry-After is sent again, its wait is part of the latency, and one in a thousand is forgiven. Every
//     other fault that the quiet phase did not have is one too many: 5xx, timeouts, broken connections, watches that end early.
//   - The 99th percentile of cached reads and of events, from acknowledgement to client, is at most 3 times that of the quiet phase. Both are
//     medians of twelve windows.
//   - Memory is flat: in the second half of the attack at most 20 % more than in the first. Connections, goroutines and files come back.
//   - watchfan ends with 0 at SIGTERM, and its log has no panic and no token.
//   - Each kind of attack happened: the ledger says how often, and how it was answered.
//
// A run of less than ten minutes reports latency and memory and fails only at multiples that no busy machine explains: what it can't measure there, it does
// not judge. What is shown to clients, faults, and what is used after the attack are judged in every run.
//
// # What is not watchfan's
//
// All processes share the machine, and what is passed through loads kube-apiserver. -target=kube-apiserver makes the same attacks on kube-apiserver itself,
// with the same clients, and shows what a server without a proxy makes of them. The row "update at kube-apiserver" shows how long the steady
// writer's updates take, which do not pass through watchfan, and what kube-apiserver uses of the processors is reported beside what watchfan uses. A long
// run wants a machine that does nothing else. -only and -except choose kinds of attack.
//
// # That it can fail
//
// TestFollowerNotices and TestWatcherNotices have a server make one mistake each, TestVerdictNotices one bad measurement each. Any build can be tried:
//
//	DEVCLUSTER_BIN=$PWD/bin/devcluster WATCHFAN_BIN=/somewhere/watchfan go test -v ./proxy/attack -duration=2m
package attack_test
