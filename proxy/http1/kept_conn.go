package http1

import (
	"crypto/tls"
	"net"
)

// keptConn returns the kept bytes first, then reads the connection.
type keptConn struct {
	net.Conn
	kept []byte
}

// keptTLSConn is keptConn over TLS. fasthttp still sees a TLS connection.
type keptTLSConn struct {
	tlsConn
	kept []byte
}

type tlsConn interface {
	net.Conn
	Handshake() error
	ConnectionState() tls.ConnectionState
}

func withKept(c net.Conn, kept []byte) net.Conn {
	if t, ok := c.(tlsConn); ok {
		return &keptTLSConn{tlsConn: t, kept: kept}
	}
	return &keptConn{Conn: c, kept: kept}
}

func (c *keptConn) Read(p []byte) (int, error)    { return readKept(c.Conn, &c.kept, p) }
func (c *keptTLSConn) Read(p []byte) (int, error) { return readKept(c.tlsConn, &c.kept, p) }

func readKept(c net.Conn, kept *[]byte, p []byte) (int, error) {
	if len(*kept) == 0 {
		return c.Read(p)
	}
	n := copy(p, *kept)
	if *kept = (*kept)[n:]; len(*kept) == 0 {
		*kept = nil
	}
	return n, nil
}

// accepted returns the connection as the listener accepted it, without a wrapper that replays kept
// bytes.
func accepted(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *keptConn:
		return c.Conn
	case *keptTLSConn:
		return c.tlsConn
	}
	return c
}
