package exchange

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// Conn is the client's connection, which carries the request. It stays valid after the request has
// ended. Its methods may be called from any goroutine.
type Conn interface {
	RemoteAddr() net.Addr
	// Secure reports whether the connection has TLS. TLS returns the state of TLS, nil without TLS.
	Secure() bool
	TLS() *tls.ConnectionState
	// TCP is the TCP connection below all protocols, for queries to the kernel. The caller must not
	// write, read or close it.
	TCP() *net.TCPConn

	// Left reports whether the client has left, as far as that can be told without reading.
	Left() bool
	// Break makes the request end without a whole response, and does not wait: a stream is reset, a
	// connection that carries one request at a time is closed.
	Break()
	// Remaining is how long the connection may still be used; ok is false if there is no limit.
	Remaining() (d time.Duration, ok bool)
	// Dismissed is closed when the client has been told to use another connection from now on, although
	// this proxy goes on. It may never be closed.
	Dismissed() <-chan struct{}

	// Payer returns who pays for what the connection holds until the client of a request is known: a
	// known client that has sent a request on it before, of which KnownAs says who it is, or a stranger
	// at its address.
	Payer() account.Source
	KnownAs(account.Source)

	// Arriving reports whether the connection is new and may still hold a turn at the processors.
	// EndArrival ends the arrival, because the request waits for something else. It may be called
	// more than once.
	Arriving() bool
	EndArrival()
	// Turn waits for a turn at the processors, as an arrival does, and returns how to give it back. It is
	// for a request that has waited for something together with many others, all of which go on at the
	// same instant.
	Turn() (give func())
}

// StreamConn is a [Conn] that is one of several streams of a TCP connection.
type StreamConn interface {
	Conn
	// StreamID is the stream's number on its connection.
	StreamID() uint32
	// Window returns the window of the client that keeps bytes of the stream from being sent now.
	Window() Window
}

// Window is a window of flow control above TCP.
type Window uint8

const (
	OpenWindow       Window = iota // none is closed
	StreamWindow                   // the stream's own
	ConnectionWindow               // the one of all streams of the connection
)
