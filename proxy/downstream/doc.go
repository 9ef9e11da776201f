// Package downstream is clients' connections: listeners, TLS, the queue of those that have just come, checks of a
// request's head, bodies of shared slices, and the sinks that watches are written to.
//
// What knows about HTTP/1.1 and fasthttp's connections is here. It knows no lane and no user's rights.
package downstream
