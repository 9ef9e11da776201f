// Package diagnose shows watches and lanes as an operator sees them: why a watch is slow, the pages
// under /debug, the status page, and the commands top and explain that read these pages.
//
// It reads lanes and connections. Nothing that serves clients depends on it.
//
// # Why a watch is slow
//
// /debug/watchers lists the watches, /debug/watchers/ID and watchfan explain give a verdict on one:
// a [Cause], the numbers that led to it, and what to do. It is looked for from the client's end,
// because what is further back does not matter while something nearer is in the way:
//
//	client ◀── network ◀── socket ◀── shard ◀── list of the filter ◀── lane ◀── kube-apiserver
//	window     losses      parked     lag       selects nothing        broken, silent, unreachable
//
// The kernel says what happens between the client and its socket (TCPInfo): a closed window that is
// confirmed whenever we ask is a client that does not read, segments without an answer are the
// network, or a host that is gone. What a shard owns it says itself, between two rounds of
// deliveries (fanout.Flusher.Inspect). A watch that is evicted has its verdict, at the instant of
// that decision, in the log and in watchfan_evictions_total.
//
// Some things cannot be told apart:
//
//   - A client that reads slowly behind a proxy or load balancer of its own, and that proxy. What
//     is seen is the next TCP connection.
//   - TLS. Its handshake is over before a watch begins, and sealing is part of a shard's turn,
//     which is not timed for each watch: a shard that has too much to seal is a slow shard.
//   - What lies in the socket of a client that reads slowly, but fast enough for the socket not to
//     fill up.
//
// To look at a watch costs its shard 0.1 µs and the one who looks 2 to 3 µs, nearly all of it the
// kernel's answer; nothing is counted atomically, or locked, for it. The register of watches takes
// 88 bytes for each.
package diagnose
