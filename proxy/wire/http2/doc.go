// Package http2 serves HTTP/2 (RFC 9113) on TLS connections that have negotiated it. It reads
// requests into exchanges, and writes the handler's responses.
//
// It uses golang.org/x/net/http2's Framer to read frames and to write all frames but DATA, and its
// HPACK. The server of that module copies each payload and takes a goroutine for each stream. This
// package knows no user's rights, no lane and no upstream.
//
//	client ─▶ reader ─▶ headDecoder ─▶ stream.serve ─▶ handler ─▶ respond ─┐ body, reader, detached
//	            │ control frames                                          └▶ watch: a shard's sink
//	            └──────────────▶ conn.sendLocked ─▶ TLS ─▶ client ◀───────────┘
//
// # Goroutines
//
// Each connection has one that reads. Each request has one until its handler has returned and its
// response has been written. A watch has none. Any goroutine may send: it locks the connection,
// queues its bytes, and writes what the socket takes without waiting. Another goroutine goes on
// while more is due than is sealed at a time, and when the socket has room again; see the poller.
// Serve returns when all of them have ended.
//
// # What a watch is sent
//
// A shard writes HTTP/1.1 chunks. A watch takes their payloads, which are the same memory
// ([framing.NextPayload]), and puts a DATA header of 9 bytes in front of each batch. The connection
// gathers the batches of all its watches in full TLS records. It writes these when the shard has
// written to all its watches, at the end of the shard's round, or before if much is due for all
// connections ([fanout.Carrier]). It seals about 256 KiB at a time, or one batch if that is more.
// Everything else waits as shared slices.
//
// A watch is parked when its own window is closed, when the connection's window is closed, or when
// the socket is full. Others go on. When room comes back, streams take turns of 64 KiB.
//
// # Ends
//
// A complete response ends with END_STREAM. What cannot be completed is reset with INTERNAL_ERROR;
// clients ask again. If the response is complete before the request is, the client is told to stop
// with NO_ERROR. A connection ends with GOAWAY (package wire, Restarts), also behind the answer to a
// client without a valid credential, as in kube-apiserver. The second GOAWAY follows when the client
// has answered a PING, or after a second. What was under way then is ignored.
//
// TCP finds dead clients, as with HTTP/1.1: Linux gives up after about 2.5 minutes without an answer
// to its keepalive, and after about 15 if something that was sent is not acknowledged. A PING of our
// own would also end watches of clients that are only stopped for a while. kube-apiserver sends none
// either.
//
// # A hostile network
//
// The rules for a request are those of package http1, and so are the answers. In addition:
//
//	a malformed head (RFC 9113, section 8)             reset with PROTOCOL_ERROR
//	a head of more than 1 MiB or 16,384 fields         431; one with a string of more than 1 MiB, or
//	                                                   encoded in more than 2 MiB or 256 frames,
//	                                                   ends the connection
//	a head that does not end                           the connection ends after 32 s
//	too many CONTINUATION frames (CVE-2023-45288)      ENHANCE_YOUR_CALM
//	too many streams, counting those whose handler     REFUSED_STREAM
//	  still runs (CVE-2023-44487, CVE-2025-8671)
//	too many requests given up or refused, or frames   ENHANCE_YOUR_CALM; see type calm
//	  that ask for nothing or bring a few bytes
//	a client that does not read our answers            the connection ends beyond 100 of them, or
//	                                                   beyond 16 KiB of those of TLS
//	a client that does not read when all has ended     cut off after 5 s
//	windows that stay closed, or open slowly           60 s from the request on, or its own ?timeout=;
//	                                                   watches are parked
//	bodies that nobody reads                           256 KiB for each connection, and for each
//	                                                   body; 4 MiB for a connection with a known
//	                                                   client; in all as package account bounds
//	a body that comes slowly                           60 s in all, for an ordinary request
//	a connection without requests                      GOAWAY after 90 s, or 32 s before the first
//
// proxy/suites/e2e sends such attacks to kube-apiserver too (proxytest.HTTP2Attacks), and runs h2spec.
//
// The limits of heads are kube-apiserver's, and those of HTTP/1.1. kube-apiserver's frames may be
// larger (256 KiB) and its window for a connection wider (26 MB), and it takes any number of frames
// that ask for nothing, and of CONTINUATION frames. Smaller limits bound what a client can make the
// proxy hold and do.
package http2
