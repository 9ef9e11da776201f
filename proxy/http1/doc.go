// Package http1 serves HTTP/1.1 and HTTP/1.0: it reads requests into exchanges, and writes what the
// handler has answered.
//
// It is the only room that knows fasthttp, which reads heads and bodies and writes ordinary
// responses. It knows no user's rights, no lane and no upstream.
//
//	client ─▶ fasthttp ─▶ Server.serve ─▶ readHead ─▶ handler ─▶ respond ─▶ fasthttp ─▶ client
//	                                                                └─▶ hijacked: a stream, or a response that may last
//
// A response that outlives its handler takes the connection from fasthttp (hijacked.go). It costs no
// goroutine while a shard writes it. What the client sends meanwhile is kept for its next request.
// When the response is complete, fasthttp gets the connection back; otherwise it is closed.
//
// # A hostile network
//
// What is sent to us is refused at the first place that can tell, and before anything behind it
// looks:
//
//	too many connections                         the listener resets them            --max-connections
//	new connections while memory is spent        the same                            --memory-limit, see memory
//	a handshake or a head that does not end      closed, or 408, 32 s after its beginning, however steadily it comes
//	no HTTP/1.1, a head of more than 64 KiB      fasthttp: 400, 431, 501
//	two readings of one head                     readHead: 400, 417, 431, 501, 505, and the connection ends
//	a web page of another host or port           local: 403, on the insecure port and on an admin port on loopback
//	nobody, or somebody one may not act as       identify, actAs: 401, 403
//	more tokens never seen than can be reviewed  reviewQueue: 429
//	a body that does not come, or breaks off     requestBody: 408, 400; never sent on as a whole one
//	a client that does not read                  60 s for each write; watches have bounds of their own, see package fanout
//	a user who lists all the time                fairness: takes turns with others; 429 for what waits beyond its bounds
//
// Whoever is in front of us, and kube-apiserver behind, must see the requests that we see: where
// two servers may read the same bytes in two ways, nothing is passed on. proxy/e2e compares some
// 200 such requests with kube-apiserver's answers, and FuzzRequest compares what goes upstream with
// what net/http reads. A head is parsed here once more, for 0.13 µs.
//
// In two things we are more lenient than kube-apiserver, and neither lets anybody see two requests
// in one: fasthttp skips empty lines before a request line, and reads chunk extensions of any
// length, which are dropped; the time for a body bounds them.
package http1
