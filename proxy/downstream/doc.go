// Package downstream is clients' connections: listeners, TLS, the queue of those that have just
// come, checks of a request's head, bodies of shared slices, and the sinks that watches are written
// to.
//
// What knows about HTTP/1.1 and fasthttp's connections is here. It knows no lane and no user's
// rights.
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
//	two readings of one head                     checkHead: 400, 417, 431, 501, 505, and the connection ends
//	a web page of another host or port           local: 403, on the insecure port and on an admin port on loopback
//	nobody, or somebody one may not act as       identify, actAs: 401, 403
//	more tokens never seen than can be reviewed  reviewQueue: 429
//	a target that is no path                     passthrough: 400
//	a body that does not come, or breaks off     requestBody: 408, 400; never sent on as a whole one
//	a client that does not read                  60 s for each write; watches have bounds of their own, see package fanout
//	a user who lists all the time                fairness: takes turns with others; 429 for what waits beyond its bounds
//
// Whoever is in front of us, and kube-apiserver behind, must see the requests that we see: where
// two servers may read the same bytes in two ways, nothing is passed on. proxy/e2e compares some
// 200 such requests with kube-apiserver's answers, and FuzzRequest compares what goes upstream with
// what net/http reads. A head is parsed here once more, for 0.06 µs.
//
// In two things we are more lenient than kube-apiserver, and neither lets anybody see two requests
// in one: fasthttp skips empty lines before a request line, and reads chunk extensions of any
// length, which are dropped; the time for a body bounds them.
//
// Nothing is served beyond this host without TLS (1.2 or 1.3, Go's ciphers) and somebody's
// identity: the insecure port is on 127.0.0.1, and an admin port elsewhere shows everybody health,
// metrics, the lanes and with --profiling the watches, but profiles to this host only.
package downstream
