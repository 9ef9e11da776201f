// Package downstream is clients' connections: listeners, TLS, the queue of those that have just
// come, their life until a shutdown, and the sinks that watches are written to.
//
// It knows what any protocol needs of a connection. It knows no request, no lane and no user's
// rights; see package http1 for what clients may send.
//
// Nothing is served beyond this host without TLS (1.2 or 1.3, Go's ciphers) and somebody's
// identity: the insecure port is on 127.0.0.1, and an admin port elsewhere shows everybody health,
// metrics, the lanes and with --profiling the watches, but profiles to this host only.
package downstream
