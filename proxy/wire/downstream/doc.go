// Package downstream handles clients' connections: listeners, TLS, the queue of new connections,
// the connections' lifetime until a shutdown, and the sinks that watches are written to.
//
// It provides what every protocol needs of a connection. It knows no request, no lane and no user's
// rights. Packages http1 and http2 document what clients may send.
//
// Beyond this host, requests need TLS (1.2 or 1.3, Go's ciphers) and an identity. The insecure port
// is on 127.0.0.1. An admin port on another address shows health, metrics, the lanes and, with
// --profiling, the watches to everyone, but profiles to this host only.
package downstream
