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
// exactly as kube-apiserver would. Any doubt (a parameter kube-apiserver would refuse, another representation, a resource that is not
// there, a client that may not read it, a state that can't be proven fresh in time) passes the request through, and kube-apiserver
// chooses the words. That is why hardly an error is written here.
//
// # What a client may rely on
//
//  1. An event is the bytes that kube-apiserver sent, or is spliced from them as kube-apiserver would have.
//  2. After its initial events a watch's resourceVersions never decrease, no event of the watch is missing, and none comes twice. A
//     watch that can't go on like this ends.
//  3. A bookmark is sent behind every event up to its resourceVersion.
//  4. A watch that begins with initial events and no resourceVersion shows a state at least as new as any write that was acknowledged
//     before the request; see prover for how that is known.
//  5. Nothing is shown to a client that kube-apiserver would not let read it: the client's own token asks, and asks again each
//     minute while a watch is open.
//
// Unlike kube-apiserver, which ends every watch when its cache loses touch with etcd, a lane whose upstream watch breaks goes on from its
// last resourceVersion, or lists once and shows its clients the differences; their streams stay open. An object may then have had
// versions that no client saw, but its latest is always shown. And a watch of a client whose permission is gone ends,
// where kube-apiserver's would go on.
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
// # Goroutines
//
// All end before Server.Run returns.
//
//   - Run: one for each listener, the upstream check, the lanes' keeper, the authorizer's re-checks;
//   - one for each lane, its reflector; one more while freshness is being proven;
//   - fanout's: one for each shard, and one for each client that does not read, until it does;
//   - fasthttp's: one for each connection between two requests or being answered;
//   - one for each watch or passed-through stream, which waits for the client to leave.
package proxy
