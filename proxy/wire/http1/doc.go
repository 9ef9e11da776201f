// Package http1 serves HTTP/1.1 and HTTP/1.0. It reads requests into exchanges, and writes the
// handler's responses.
//
// It is the only package that uses fasthttp, which reads heads and bodies and writes ordinary
// responses. It knows no user's rights, no lane and no upstream.
//
//	client ─▶ fasthttp ─▶ Server.serve ─▶ readHead ─▶ handler ─▶ respond ─▶ fasthttp ─▶ client
//	                                                                └─▶ hijacked: a stream, or a response that may last
//
// A response that outlives its handler takes the connection from fasthttp (hijacked.go). It costs
// no goroutine while a shard writes it. Bytes that the client sends meanwhile are kept for its next
// request. When the response is complete, fasthttp gets the connection back; otherwise the
// connection is closed.
//
// A connection whose TLS has negotiated HTTP/2 is given to package http2 ([Server.Also]).
//
// # WebSockets
//
// A watch over a WebSocket is a stream whose sink writes messages (messages.go). Its client's
// frames are read as they come and answered (web_socket.go). Such a connection carries no further
// request. Package websocket has the bytes.
//
// # A hostile network
//
// Bad input is rejected at the first place that can detect it, before any code behind that place
// reads it:
//
//	too many connections                         the listener resets them            --max-connections
//	new connections while memory is spent        the same                            --memory-limit, see memory in package proxy
//	a handshake or a head that does not end      closed, or 408, 32 s after its beginning, however steadily it comes
//	a connection that brings no request          closed without an answer, 32 s after its beginning, 90 s after a response
//	no HTTP/1.1, a head of more than 1 MiB       fasthttp: 400, 431, 501
//	long heads                                   those of more than 16 KiB count; behind one of more than 64 KiB the connection ends
//	two readings of one head                     readHead: 400, 417, 431, 501, 505, and the connection ends
//	a web page of another host or port           local in package proxy: 403, on the insecure port and on an admin port on loopback
//	no identity, or a forbidden impersonation    auth.Authenticator.Identify, auth.Authorizer.ActAs: 401, 403
//	too many unknown tokens to review            reviewQueue in package auth: 429
//	a body that does not come, or breaks off     requestBody: 408, 400; never sent on as a whole one
//	a WebSocket's frames                         read and dropped; one batch of pongs waits for a client that does not read
//	a client that reads slowly, or not at all    60 s from its request on, or its own ?timeout=; 60 s for each write of what
//	                                             passes through and may last; watches have bounds of their own, see package fanout
//	a user who lists all the time                package fairness: users take turns; 429 for reads that wait beyond its bounds
//
// A proxy in front of watchfan, watchfan, and kube-apiserver behind it must all see the same
// requests. Ambiguous requests are therefore rejected, not forwarded. proxy/suites/e2e compares some 240
// such requests with kube-apiserver's answers, and FuzzRequest compares the requests sent upstream
// with net/http's reading of them. A head is parsed here a second time.
//
// Three things are more lenient than in kube-apiserver. None makes two requests of one. fasthttp
// skips empty lines before a request line, and takes a bare LF at its end (RFC 9112, section 2.2). It
// reads chunk extensions of any length and drops them; the time limit of the body bounds them.
package http1
