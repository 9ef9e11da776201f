package downstream

import (
	"net"
	"syscall"
)

// Socket reads and writes a TCP connection with the least work: its system calls do not concern the
// scheduler. Deadlines are the connection's. One goroutine at a time may read, and one write.
type Socket struct{ raw syscall.RawConn }

// NewSocket returns the socket of a connection.
func NewSocket(c *net.TCPConn) (Socket, error) {
	raw, err := c.SyscallConn()
	return Socket{raw}, err
}

func (s Socket) Read(p []byte) (int, error) { return readSocket(s.raw, p, true) }

func (s Socket) Write(p []byte) (int, error) { return writeSocket(s.raw, p) }

// Quiet reports whether nothing has come that was not read, and the peer has not closed the connection or
// its sending side.
func (s Socket) Quiet() bool {
	quiet := false
	err := s.raw.Control(func(fd uintptr) { quiet = nothingCame(fd) })
	return err == nil && quiet
}
