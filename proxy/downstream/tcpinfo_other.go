//go:build !linux

package downstream

import (
	"errors"
	"net"
)

// ReadTCPInfo fails on systems other than Linux.
func ReadTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }

// HasLeft returns false on systems other than Linux. A read reports a client that has left.
func HasLeft(*net.TCPConn) bool { return false }
