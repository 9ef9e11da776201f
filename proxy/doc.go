// Package proxy is a Kubernetes API server to its clients and one client to kube-apiserver: it watches each resource
// once, however many clients watch it, and passes through whatever it does not serve itself.
//
// # One request's way
//
//	client ─▶ Server.handle ─▶ identify ─▶ parseRequest ─▶ cachedReads.serve ─▶ lane ─▶ fanout.Cache
//	                              │             │ not ours         │ not allowed, not proven, not known
//	                              ▼ 401         └─────────▶ passthrough ◀─────────┘ ──▶ kube-apiserver
//
// A request is served from a cache only if it is positively recognised as a get, list or watch that a cache can answer
// exactly as kube-apiserver would. Any doubt (a parameter kube-apiserver would refuse, a representation that is not cached, a resource that is not
// there, a client that may not read it, a state that can't be proven fresh in time) passes the request through, and kube-apiserver
// chooses the words. That is why hardly an error is written here.
//
// # Before a yes
//
// Until kube-apiserver has said that the client may read, nothing that is cached is looked at, no lane
// is looked at or started, and nothing is asked in the proxy's own name but a review that only the
// proxy can ask. Otherwise a stranger could have us work, ask and list, and learn from the time that it
// takes what it may not see. Two kinds of reads are passed through without a review, because that would
// be a second request where one will do. Neither is chosen by what is cached:
//
//   - A get without a resourceVersion, if only a few of that resource are under way, or if a client
//     that may read has just found that the resource has no lane.
//   - A list that was small within the last minute, when the same client sent it and might read it.
//
// What an allowed client has us ask is bounded as well. kube-apiserver's list of groups, once every two
// seconds, answers for all groups that do not exist (servedVersions), and a few requests for discovery
// and for supported encodings are under way at a time.
//
// # What a client may rely on
//
//  1. An event is the bytes that kube-apiserver sent, or is spliced from them as kube-apiserver would have.
//  2. After its initial events a watch's resourceVersions never decrease, no event of the watch is missing, and none comes twice. A
//     watch that can't go on like this ends.
//  3. A bookmark is sent behind every event up to its resourceVersion; only deletions that a list has shown may come with one that is known already.
//  4. A list, a get, and a watch that begins with initial events, show without a resourceVersion a state at least as new as any write
//     that was acknowledged before the request; see Freshness.
//  5. Nothing is shown to a client that kube-apiserver would not let read it, and nothing is done for a client that it would not let do it:
//     kube-apiserver is asked in that client's name, and asked again each minute while a watch is open. See Identities and Audit. An API
//     that may show each client something else, because an aggregated server answers for it, is not cached; see aggregation.
//
// Unlike kube-apiserver, which ends every watch when its cache loses touch with etcd, a lane whose upstream watch breaks goes on from its
// last resourceVersion, or lists once and shows its clients the differences; their streams stay open. An object may then have had
// versions that no client saw, but its latest is always shown. And a watch of a client whose permission is gone ends,
// where kube-apiserver's would go on.
//
// # Identities
//
// Clients of the secure port are who they would be at kube-apiserver, found in the same order:
//
//	front proxy         whom a front proxy's headers name      --requestheader-…
//	client certificate  its subject                            --client-ca-file
//	bearer token        its owner, whoever that is
//	anonymous           nobody in particular                   --anonymous-auth
//
// A token is sent on as it came, and asks itself what its owner may read (SelfSubjectAccessReview): that takes no right of ours, and to
// decide we need not know who the owner is. Only an audit log, and limits for each user, want the name: then the token asks for that itself
// too (SelfSubjectReview); see owners. A TokenReview would tell us, for a right to see everybody's tokens reviewed, and kube-apiserver would have
// to believe us when we then impersonated the owner. So there is none. The price: the tokens of one account ask each for themselves, once a minute
// for each resource that they watch, which takes kube-apiserver 0.75 ms (deploy/README.md, Size). To ask once for their owner, what tells tokens
// apart would have to be kept from the authorizers (authentication.kubernetes.io/credential-id, pod-name and node-name in the user's extra), and
// some may look at it. Anonymous requests are all passed through, without any credential,
// and so is whatever a token asks for with Impersonate-* headers.
//
// Known clients wait for no stranger. A client is known by a token that kube-apiserver has accepted lately, by a certificate, or by a front
// proxy. Known clients have slots for access reviews of their own (reviewQueue), and known tokens a connection to kube-apiserver (Upstream).
//
// Answers are believed for as long as kube-apiserver's own delegating servers believe them, 10 s, and open watches are asked about each minute;
// the --authorization-… flags change that. A watch whose client may not read any longer ends for the reason "revoked", in the log, the
// metrics and the audit log.
//
// On the insecure port who brings no token is the proxy itself, and nobody is asked. Secrets are not served from a cache there: each read of one is
// kube-apiserver's to allow and to write down.
//
// A certificate cannot be sent on. For its user, and for whom a front proxy names, we ask with our own credential (SubjectAccessReview),
// and what is passed through goes with our credential and Impersonate-* headers. An Impersonate-* header of such a client
// is allowed value by value, with the verb impersonate, as kube-apiserver does it. The proxy's own account then needs, beside what it watches:
//
//	apiGroups: [authorization.k8s.io]   resources: [subjectaccessreviews]            verbs: [create]
//	apiGroups: [""]                     resources: [users, groups, serviceaccounts]  verbs: [impersonate]
//	apiGroups: [authentication.k8s.io]  resources: ["*"]                             verbs: [impersonate]    (uids, userextras/KEY)
//
// Who may impersonate every group may act as system:masters: with these rights the proxy's credential is as good as cluster-admin's, and whoever
// can have a certificate signed by one of the authorities is believed. Groups may be narrowed by resourceNames, which must then include
// system:authenticated; the members of others are refused by kube-apiserver. Without --client-ca-file and
// --requestheader-client-ca-file none of this is needed.
//
// A certificate is looked at with each request. Its watches, and those of a front proxy's users, end once it has expired, or once its authority is
// no longer in the file; see voucher. Watches that are passed through go on, as at kube-apiserver. Logs and metrics say how clients have
// shown who they are, never who.
//
// # Audit
//
// kube-apiserver's audit log does not show what is read from a cache. --audit-log-path writes it, in the same form and with the same reasons,
// and so one may be appended to the other: what is passed through is in kube-apiserver's alone, what is served or refused here in ours
// alone, with the Audit-Id that the client was told. See auditLog for what is written when, and what it costs; and --exclude for resources
// that are to stay in one log.
//
// # A hostile network
//
// What is sent to us is refused at the first place that can tell, and before anything behind it looks:
//
//	too many connections                         the listener resets them            --max-connections
//	new connections while memory is spent        the same                            --memory-limit, see memory
//	a handshake or a head that does not end      closed, or 408, 32 s after its beginning, however steadily it comes
//	no HTTP/1.1, a head of more than 64 KiB      fasthttp: 400, 431, 501
//	two readings of one head                     checkHead: 400, 417, 431, 501, 505, and the connection ends
//	a web page of another host or port           local: 403, on the insecure port and on an admin port on loopback
//	nobody, or somebody one may not act as       identify, actAs: 401, 403
//	more tokens never seen than can be reviewed  reviewQueue: 429
//	a target that is no path                     passthrough: 400
//	a body that does not come, or breaks off     requestBody: 408, 400; never sent on as a whole one
//	a client that does not read                  60 s for each write; watches have bounds of their own, see package fanout
//	a user who lists all the time                fairness: takes turns with others; 429 for what waits beyond its bounds
//
// Whoever is in front of us, and kube-apiserver behind, must see the requests that we see: where two servers may read the same bytes in two
// ways, nothing is passed on. proxy/e2e compares some 200 such requests with kube-apiserver's answers, and FuzzRequest compares what goes
// upstream with what net/http reads. A head is parsed here once more, for 0.06 µs.
//
// In two things we are more lenient than kube-apiserver, and neither lets anybody see two requests in one: fasthttp skips empty lines before a
// request line, and reads chunk extensions of any length, which are dropped; the time for a body bounds them.
//
// Nothing is served beyond this host without TLS (1.2 or 1.3, Go's ciphers) and somebody's identity: the insecure port is on 127.0.0.1, and an
// admin port elsewhere shows everybody health, metrics, the lanes and with --profiling the watches, but profiles to this host only.
//
// # Fairness
//
// What a cached read costs in proportion to a collection is done in one of a few seats (GOMAXPROCS, two at least): searching with a selector,
// collecting items, compressing them for the first time, reconstructing a past state, sealing a long body for TLS. One user has all seats but
// one at most, and users who want more take turns of 2 ms, so that a short list is delayed by one turn of each other user, however long their lists
// are. Nobody holds a seat while a client is written to. A user who has 300 reads waiting, or one for 15 s, is told to come again (429). A seat
// that is free costs a read 0.3 µs. See fairness.
//
// Measured with 5,000 ConfigMaps of 22 MB in all, on 2 cores that clients and kube-apiserver used too: a list of 10 ConfigMaps over TLS, alone, and
// while another user lists all on 20 connections; median and 99th percentile.
//
//	                               alone              beside plain lists    beside gzip lists of different selectors
//	without seats                  0.4 ms, 5 ms       0.7 ms, 63 ms         15 ms, 477 ms
//	with seats                     0.4 ms, 4 ms       0.7 ms, 12 ms         0.1 ms, 7 ms
//	kube-apiserver                 1.0 ms, 4 ms       3.1 ms, 113 ms        242 ms, 519 ms
//
// # Why not delegated authentication
//
// k8s.io/apiserver has for its own delegating servers what identify and authorizer do here: an authenticator that has kube-apiserver review tokens, and
// an authorizer that asks it by SubjectAccessReview, with field and label selectors too. Measured with v0.37.2 (go test -bench -count=10 -cpu=1 against a
// server of net/http that answers reviews, a token of 900 bytes, 2 cores of an AMD EPYC that had other work; median, and least to most):
//
//	                               k8s.io/apiserver                          here
//	binary                         52.8 MB                                   14.5 MB
//	modules, packages in it        93, 931                                   40, 376
//	one decision from memory       3.8 µs (2.5–5.9) + 2.6 µs (2.4–4.7)       2.6 µs (2.0–2.8) a token's, 1.6 µs (1.6–2.0) a user's
//	rights for clients with token  tokenreviews and subjectaccessreviews,    none
//	                               and impersonate to pass requests on
//
// It would serve a client's several tokens by one decision for each user, where we ask for each token. But it ends with a decision: it does not ask
// again about open watches, it takes a token away from its request instead of sending it on, and it does not bound how many reviews are under way. What would be
// left for us is most of what we have. So the rules are learnt from it, and the code is not used.
//
// # Representations
//
// Clients ask for JSON, protobuf or CBOR, for whole objects or their metadata only. Each form of a resource has a lane of its own, filled with
// the bytes that kube-apiserver itself sends in that form, because to make one form of another takes the resource's Go types. Tables, YAML
// and indented JSON are made for people's eyes and pass through. Which encodings kube-apiserver serves of a resource is asked once; see supportedEncodings.
//
// Watches are sent as gzip to clients that accept it, compressed once for all of them, as one gzip member; see package fanout, Compression.
//
// # Freshness
//
// A read without a resourceVersion promises a state at least as new as the request (KEP-2340; KEP-3157 for watches). Kube-apiserver asks etcd
// for the current revision R and waits until its cache has come there. So do we, with kube-apiserver for etcd, and not once for each
// read but once for all that wait.
//
// R is had from a list that is consistent, empty and all but free. That our own stream has brought everything up to R is harder to know,
// because a quiet resource's stream says nothing, and what another connection has shown proves nothing of ours. One
// of these proves it:
//
//   - The stream itself passes R. A busy resource's does within milliseconds.
//   - A list of the collection, consistent by itself, has the same objects in the same versions as the cache. Then the cache's state is that of
//     the list's resourceVersion, although the stream may have yet to bring changes that undid each other; who is served on this
//     proof is not shown those (see fanout.Proof). Only the metadata is fetched. Small collections are always proved so, larger ones
//     for a bounded part of the time.
//   - A second watch from the cache's resourceVersion with a timeout of 3 s gets a bookmark B ≥ R after about a second: all that kube-apiserver
//     sends short of a bookmark each minute. B says that the second watch has shown every change up to B. Once our own stream has brought
//     the last of those, nothing is missing up to B.
//
// It does not matter which of several kube-apiservers answers: R and the list come out of quorum reads of etcd, whoever makes them, and a
// bookmark speaks of the stream that it is on. A lane that was first filled by a list asked for after the request needs no proof. What can't be
// proved within --freshness-timeout passes through.
//
// Where a read wants so little that kube-apiserver answers it as easily as it says R (a get, a list of a few objects), the first few at a time of
// each resource are passed through, and only those beyond share a proof: nobody waits longer than without us, and kube-apiserver's work for a burst of
// any size stays bounded.
//
// # One watch's life
//
// A lane is one resource in one representation: a reflector that follows it upstream and a cache that its clients read. The first client
// starts it; it stops when it has had none for --idle-timeout. A watch becomes a subscription of the lane's cache, takes its
// connection over from fasthttp, and is written to by the flusher's shards, without waiting, from
// shared frames. It ends for one of the reasons in package fanout, with a last chunk if all that was promised has been
// written, and then its connection can carry another request; otherwise the connection is closed.
//
// Clients that come back with a resourceVersion from before the lane began are served on: one upstream watch, shared by all
// who wait, fetches the history that is missing. What selectors' clients get of it can depend on the versions before that; an exact list, of those objects
// or of a collection that is not too large, has them.
//
// While a lane is being filled for the first time its clients wait, and a handful of them pass through;
// filling says how many, and when clients get 429. Passing through is bounded there because a resource
// that takes long to list is the one that kube-apiserver can least list for everybody. It is not bounded
// where waiting brings nothing: kube-apiserver does not let the proxy list the resource, an object can't
// be cached, or memory is full. What can't be proved fresh, or needs a past that is not known, passes
// through without a bound, too.
//
// # Restarts
//
// Clients are to go on elsewhere without listing. After SIGTERM:
//
//		/readyz fails ──delay──▶ ports and idle connections close ──drain──▶ what is left ends ──timeout──▶ what is left is cut
//		all is served            watches end one after another               last chunks: watches, logs, upgrades
//
//	  - During --shutdown-delay-duration everything goes on, new connections too, until nobody sends any more.
//	  - During --drain-duration watches end evenly spread, in random order, each whole (package fanout, Endings): behind all that there is for its
//	    client and behind a bookmark. Then its connection is closed, so that the client dials again and finds another replica. Answers to other
//	    requests say Connection: close. Logs, upgrades and watches that pass through last until the drain is over.
//	  - Then what is left ends at once, properly where everything before has been written. A client that does not read is cut off five seconds later, and
//	    whatever is left after --shutdown-timeout.
//
// A client comes back to a replica that has been up for longer, and its next watch goes over the same connection. So that clients spread again, a
// connection ends at --max-connection-age, as in the drain; watches that pass through go on to their own end.
//
// # Watchfans in a row
//
// The upstream may be a watchfan. All that is said here holds through both: proofs of freshness too, because the watch that is to show how far
// upstream is passes through the next watchfan (see request.probes). A lane of metadata is added there, for proofs by list. The upper shows who it is as
// any client does: with a token, or with a certificate of the lower's --client-ca-file. A cycle is found out; see via.
//
// # When upstream fails
//
// Clients' streams stay open through all of it. What may be stale is served from the cache meanwhile; what must be current passes through, or is
// answered with a Status of 503 and when to come back.
//
//	the connection breaks             at once     resumed from the last resourceVersion
//	the link is dead, or the process  10 s        the same, see Upstream
//	stopped
//	a watch hangs, its connection     150 s       the same, see watchdog; sooner where a client's read shows what it did not bring
//	does not
//	the history is gone (410)         at once     one list, and its differences only; a few lanes at a time
//	a kube-apiserver that is behind   10 s        left for another, over a new connection; what it lists is not believed
//	etcd was restored                 at once     every client of the lane is told 410, when etcd itself is at an older resourceVersion
//
// A kube-apiserver that has come back may write the same objects in other bytes. Then every client of the lane is told 410, to list and see
// them; what equals is not touched. While several versions answer behind one address, a lane may hold what either has written; see reencoded.
//
// An etcd that was restored, and has already come past the lane's resourceVersion when it is seen again, continues a watch as if nothing had
// been, for every client of kube-apiserver; etcdutl's --bump-revision and --mark-compacted are against that. A lane finds it out
// when a consistent read lists a collection that the cache does not hold at that resourceVersion; then it lists, and what is older than what was shown
// before tells.
//
// # Why a watch is slow
//
// /debug/watchers lists the watches, /debug/watchers/ID and watchfan explain give a verdict on one: a [Cause], the numbers that led to it, and what to
// do. It is looked for from the client's end, because what is further back does not matter while something nearer is in the way:
//
//	client ◀── network ◀── socket ◀── shard ◀── list of the filter ◀── lane ◀── kube-apiserver
//	window     losses      parked     lag       selects nothing        broken, silent, unreachable
//
// The kernel says what happens between the client and its socket (TCPInfo): a closed window that is confirmed whenever we ask is a client that
// does not read, segments without an answer are the network, or a host that is gone. What a shard owns it says itself, between two rounds of
// deliveries (fanout.Flusher.Inspect). A watch that is evicted has its verdict, at the instant of that decision, in the log and
// in watchfan_evictions_total.
//
// Some things cannot be told apart:
//
//   - A client that reads slowly behind a proxy or load balancer of its own, and that proxy. What is seen is the next TCP connection.
//   - TLS. Its handshake is over before a watch begins, and sealing is part of a shard's turn, which is not timed for each watch: a shard that
//     has too much to seal is a slow shard.
//   - What lies in the socket of a client that reads slowly, but fast enough for the socket not to fill up.
//
// To look at a watch costs its shard 0.1 µs and the one who looks 2 to 3 µs, nearly all of it the kernel's answer; nothing is counted atomically, or
// locked, for it. The register of watches takes 88 bytes for each.
//
// # Goroutines
//
// All end before Server.Run returns.
//
//   - Run: one for each listener, the upstream check, the lanes' keeper, the authorizer's re-checks, and with a memory limit one that looks
//     at memory each second;
//   - two for each lane, its reflector and the watchdog of its upstream watch; one more while freshness is being proven;
//   - one for the audit log, which may outlast Run if its file takes no more; the library that rotates files has another, for good;
//   - one for each token whose owner is asked for, for at most 10 s;
//   - one while custom resources have lanes, which follows their definitions;
//   - one while there are lanes, which follows the APIServices; see aggregation;
//   - fanout's: one for each shard, and while watches are looked at one more for each;
//   - the poller, for all watches: it starts a goroutine for one whose client has left, or has sent something, and goes on
//     writing to one whose client reads again. Where there is no epoll, each watch has a goroutine that waits for its client to leave, and
//     another while the client does not read;
//   - fasthttp's: one for each connection between two requests or being answered;
//   - two for each passed-through stream, one of which waits for the client to leave.
//
// A panic in what is done for one client ends that client's connection, is logged and counted; see caught for where, and where not.
package proxy
