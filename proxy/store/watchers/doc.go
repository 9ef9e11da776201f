// Package watchers has the register of the watches that are served from caches. It decides why a
// watch is slow.
//
//	register.go     the open watches, the evidence on one, and evictions by cause
//	verdict.go      why a watch is slow
//	explanation.go  the verdict in words, and the advice
//
// It reads lanes and connections. The pages of package diagnose show what it finds.
//
// # Why a watch is slow
//
// /debug/watchers lists the watches. /debug/watchers/ID and watchfan explain give a verdict on one:
// a [Cause], the numbers that led to it, and advice. The search begins at the client's end. What is
// further back does not matter while something nearer is in the way:
//
//	client ◀── network ◀── socket ◀── shard ◀── list of the filter ◀── lane ◀── kube-apiserver
//	window     losses      parked     lag       selects nothing        broken, silent, unreachable
//
// Over HTTP/2 the window of the watch's stream, or that of its connection, may be closed too. The
// kernel knows what happens between the client and its socket (TCPInfo). A receive window that is
// closed, and that the client's side confirms each time it is asked, means that the client does not
// read. Segments without an answer mean that the network loses them, or that the host is gone. A
// shard describes its own watches between two rounds of deliveries (fanout.Flusher.Inspect). The
// evidence on an evicted watch is gathered at the moment of the eviction. The verdict is in the log
// and in watchfan_evictions_total.
//
// Some causes cannot be told apart:
//
//   - A client that reads slowly, and a slow proxy or load balancer in front of it. The kernel knows
//     only the next TCP connection.
//   - TLS. The handshake is over before a watch begins. Sealing is part of a shard's work and is not
//     timed for each watch, so a shard that has too much to seal looks like any slow shard.
//   - Bytes in the socket of a client that reads slowly, but fast enough that the socket never fills
//     up.
//
// Inspecting a watch costs its shard 0.1 µs, and the goroutine that asks 2 to 3 µs, nearly all of it
// for the kernel's answer. No atomic counter and no lock is needed on the way of events for it. The
// register takes 88 bytes for each watch.
package watchers
