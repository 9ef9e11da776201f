// Package attack_test lets 60 attackers of all kinds attack watchfan beside 200 honest clients, in
// front of a real kube-apiserver, and compares what the honest clients get with what they got
// before.
//
// # Running
//
//	make attack                                       half a minute of attacks
//	make attack ATTACK_DURATION=1h ATTACK_SEED=17     an hour of the attacks that seed 17 draws
//
// With the programs that make attack has built, go test takes the same and more:
//
//	go test ./proxy/attack -v -duration=2m -seed=5 -only='gzip|cold' -attackers=20
//
// -only and -except choose kinds of attack by regular expressions. A long run needs a machine that
// does nothing else.
//
// # Parts
//
//	                            ┌── 200 honest clients
//	kube-apiserver ◀═ watchfan ◀┤
//	      ▲                     └── 60 attackers: a process of its own, of the lowest priority
//	      └── the steady writer: 30 updates a second, each with the next number of its object
//
// The cluster (world_test.go) has eight tenants, each with objects, users and a namespace.
//
// Honest clients (crowd_test.go, honest_test.go) are users of the tenants, each of which may read
// its own namespace alone, and three controllers that may read everything. They come with tokens,
// with certificates, and one in ten by the insecure port. 50 watch and resume, 60 watch with
// initial events in protobuf, 30 list and watch again and again as restarted informers do, a
// quarter of all of these with gzip; 40 get and list; 20 send bodies of 200 KB. Half of those over
// TLS speak HTTP/2, and the clients of one user share connections.
//
// Attackers (attacker_test.go) take up one kind of attack after the other, each for 5 to 20
// seconds. kinds_test.go has the attacks by requests, connections_test.go those by connections and
// WebSockets, and http2_test.go those by HTTP/2's frames. Each kind is present from the first
// second on, and the next ones are drawn. Rates are bounded, and so is the number of attackers
// whose attack would only overload kube-apiserver. An attacker has a tenant of its own, or no valid
// token, or the rights of a crawler.
//
// # Attackers that stay
//
// TestHoldings has one attacker after another make a server hold memory, or take the places of
// others, and stay: with answers that are not read, bodies and heads that do not end, watches that
// stop within their initial events, caches in every representation, connections of the admin port
// (holders_test.go). Each meets a new watchfan with a memory limit of 400 MiB (200 for crowds), beside
// a few honest clients, some of which come over new connections or with new tokens. Those are served
// throughout, the resident memory stays below the limit, and what is held for strangers below a tenth
// of it. Each attacker stays for 10 seconds:
//
//	make attack ATTACK_DURATION=30s
//	go test ./proxy/attack -v -run TestHoldings -hold=1m -only='bodies'
//	go test ./proxy/attack -v -run TestHoldings -target=kube-apiserver
//
// # Phases
//
// The quiet phase lasts a quarter of the attack, at least 15 seconds and at most two minutes. All
// honest clients are present, and loops of the attackers' priority keep the processors busy: what
// attackers take from others through shared caches and cores is not the server's fault, so it is in
// both phases. Then the attackers attack. Then they leave, and the server has to return to what it
// used before.
//
// # Checks
//
//   - Watches: each object's updates come one by one. None is missing, late or repeated, not even
//     across the ends of streams that are resumed. In the end every watcher has received
//     everything.
//   - Consistent reads and initial events: at least as new as every update that was acknowledged
//     before the request.
//   - Nobody, honest or not, sees an object of another tenant. The insecure port answers no page of
//     another site.
//   - Honest requests are answered. A 429 with a Retry-After is sent again, its wait counts as
//     latency, and one in a thousand is allowed. Any other fault that the quiet phase did not have
//     fails the run: 5xx, timeouts, broken connections, watches that end early.
//   - The 99th percentile of cached reads, and of events from acknowledgement to client, is at most
//     3 times that of the quiet phase. Both are medians of twelve windows.
//   - Memory is flat: at most 20 % more in the second half of the attack than in the first.
//     Connections, goroutines and files return to the quiet level.
//   - watchfan ends with 0 at SIGTERM, and its log has no panic and no token.
//   - Each kind of attack happened. The ledger says how often, and how it was answered.
//
// A run of less than ten minutes reports latency and memory, and fails only at multiples that no
// busy machine explains. What clients see, faults, and what is used after the attack are judged in
// every run.
//
// # Repeating a run
//
// The first line of the log has the seed. It draws which attacker attacks when and how, and what
// honest clients do, but not how all of that meets in time.
//
// # Failures
//
// The report comes first: operations of both phases side by side, faults, memory, and the ledger.
// Each reason why the run failed follows on a line of its own:
//
//   - "attack phase: client 12, …": an honest client received something wrong.
//   - "breach by …": an attacker received something that it may not see.
//   - "event: p99 under attack …" and "resident memory grows …": a bound was exceeded. Compare with
//     -target=kube-apiserver before blaming watchfan.
//   - "nobody attacked by …": the run was too short for all kinds of attack.
//
// # kube-apiserver's share
//
// All processes share the machine, and what is passed through loads kube-apiserver.
// -target=kube-apiserver makes the same attacks on kube-apiserver itself, with the same clients,
// and shows how a server without a proxy fares. The row "update at kube-apiserver" has the steady
// writer's updates, which do not pass through watchfan. The report also has the processor time of
// kube-apiserver beside that of watchfan.
//
// # Rates
//
// -rate is .1 by default: attackers make a tenth of the requests that kinds_test.go has. The numbers
// of their connections and open watches do not depend on it. At 1, what kube-apiserver itself has to
// do for attackers takes all that two processors have, and everybody waits for everybody. The row of
// updates shows that: they do not pass through watchfan. Seed 5, 20 seconds, p99 in the attack as a
// multiple of that in the quiet phase (2 cores of an AMD EPYC; one run each, beside other work):
//
//	                          -rate=1   -rate=1 -target=kube-apiserver   -rate=.5   -rate=.3
//	event                     14        207                              10         2.5
//	get, resourceVersion=0    13        53                               4.6        1.3
//	list, resourceVersion=0   13        118                              4.6        1.3
//	update at kube-apiserver  5.4       95                               6.3        1.9
//
// # Mistakes that are noticed
//
// TestFollowerNotices and TestWatcherNotices have a server make one mistake each,
// TestVerdictNotices one bad measurement each. Any build can be tried:
//
//	export DEVCLUSTER_BIN=$PWD/bin/devcluster WATCHFAN_BIN=/somewhere/watchfan
//	go test -v ./proxy/attack -duration=2m
//
//testlint:allow timer attackers and honest clients keep their pace
//testlint:allow deadline how long honest clients wait is measured
//testlint:allow elapsed how long honest clients wait is measured
//testlint:allow timeout some attacks are short watches
package attack_test
