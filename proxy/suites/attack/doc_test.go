// Package attack_test lets 60 attackers of all kinds attack watchfan beside 200 honest clients, in
// front of a real kube-apiserver, and compares what the honest clients get with what they got
// before.
//
//	make attack ATTACK_DURATION=1h ATTACK_SEED=17     an hour of the attacks that seed 17 draws
//	go test ./proxy/suites/attack -v -duration=2m -seed=5 -only='gzip|cold' -attackers=20
//	go test ./proxy/suites/attack -v -run TestHoldings -hold=1m -only='bodies'
//
// The first line of the log has the seed. It draws which attacker attacks when and how, and what honest
// clients do, but not how all of that meets in time. -only and -except choose kinds of attack by regular
// expressions. A long run needs a machine that does nothing else.
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
// seconds: by requests (kinds_test.go), connections and WebSockets (connections_test.go), or HTTP/2's
// frames (http2_test.go). Each kind is present from the first second on, and the next ones are drawn. An
// attacker has a tenant of its own, or no valid token, or the rights of a crawler. Attackers make -rate of
// the requests that kinds_test.go has, by default a tenth: with all of them, what kube-apiserver itself has
// to do takes all that two processors have. Connections and open watches do not depend on it.
//
// TestHoldings has one attacker after another make a server hold memory, or take the places of
// others, and stay (holders_test.go). Each meets a new watchfan with a memory limit, beside a few honest
// clients, some of which come over new connections or with new tokens. Those are served throughout, the
// resident memory stays below the limit, and what is held for strangers below a tenth of it. Some meet a
// container, of the tier or of a node: its cache, or its fall-back, first alone and then beside the cache.
//
// -target=kube-apiserver makes the same attacks on kube-apiserver itself, and shows how a server without a
// proxy fares. The row "update at kube-apiserver" has the steady writer's updates, which do not pass
// through watchfan.
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
// every run. The report comes first, and then each reason why the run failed. TestFollowerNotices,
// TestWatcherNotices and TestVerdictNotices show that mistakes are noticed.
//
//testlint:allow timer attackers and honest clients keep their pace
//testlint:allow deadline how long honest clients wait is measured
//testlint:allow elapsed how long honest clients wait is measured
//testlint:allow timeout some attacks are short watches
package attack_test
