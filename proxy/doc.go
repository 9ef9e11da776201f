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
// # What a client may rely on
//
//  1. An event is the bytes that kube-apiserver sent, or is spliced from them as kube-apiserver would have.
//  2. After its initial events a watch's resourceVersions never decrease, no event of the watch is missing, and none comes twice. A
//     watch that can't go on like this ends.
//  3. A bookmark is sent behind every event up to its resourceVersion.
//  4. A list, a get, and a watch that begins with initial events, show without a resourceVersion a state at least as new as any write
//     that was acknowledged before the request; see Freshness.
//  5. Nothing is shown to a client that kube-apiserver would not let read it, and nothing is done for a client that it would not let do it:
//     kube-apiserver is asked in that client's name, and asked again each minute while a watch is open. See Identities.
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
// A token is sent on as it came, and asks itself what its owner may read (SelfSubjectAccessReview): that takes no right of ours, and we
// need not know who the owner is. A TokenReview would tell us, for a right to see everybody's tokens reviewed, and kube-apiserver would have
// to believe us when we then impersonated the owner. So there is none. Anonymous requests are all passed through, without any credential.
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
// A certificate is looked at with each request, and once it has expired its watches end. Logs and metrics say how clients have
// shown who they are, never who.
//
// # Representations
//
// Clients ask for JSON, protobuf or CBOR, for whole objects or their metadata only. Each form of a resource has a lane of its own, filled with
// the bytes that kube-apiserver itself sends in that form, because to make one form of another takes the resource's Go types. Tables, YAML
// and indented JSON are made for people's eyes and pass through. What kube-apiserver offers of which resource is asked once; see offers.
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
// Where a read wants so little that kube-apiserver answers it as easily as it says R (a get, a list of a few objects), the first few at a time
// are passed through, and only those beyond share a proof: nobody waits longer than without us, and kube-apiserver's work for a burst of
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
// who wait, fetches the history that is missing.
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
//   - one for each lane, its reflector; one more while freshness is being proven;
//   - one while custom resources have lanes, which follows their definitions;
//   - fanout's: one for each shard, and while watches are looked at one more for each;
//   - the poller, for all watches: it starts a goroutine for one whose client has left, or has sent something, and goes on
//     writing to one whose client reads again. Where there is no epoll, each watch has a goroutine that waits for its client to leave, and
//     another while the client does not read;
//   - fasthttp's: one for each connection between two requests or being answered;
//   - two for each passed-through stream, one of which waits for the client to leave.
package proxy
