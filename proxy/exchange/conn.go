package exchange

import (
	"crypto/tls"
	"net"
	"time"
)

// Conn is the client's connection, of which one request is a part. It stays valid when the request
// has ended. Its methods may be called from any goroutine.
type Conn interface {
	RemoteAddr() net.Addr
	// Secure reports whether the connection has TLS, and TLS returns what is known of that, nil
	// without TLS.
	Secure() bool
	TLS() *tls.ConnectionState
	// TCP is the connection below all protocols, for questions to the kernel. It is not written,
	// read or closed.
	TCP() *net.TCPConn

	// Left reports whether the client has left, as far as can be told without reading.
	Left() bool
	// Remaining is for how long the connection may still be used; ok is false if that is not
	// limited.
	Remaining() (d time.Duration, ok bool)

	// Arriving reports whether a new connection may still have a turn at the processors, and
	// EndArrival ends that: the request waits for something else. EndArrival may be called more
	// than once.
	Arriving() bool
	EndArrival()
}
