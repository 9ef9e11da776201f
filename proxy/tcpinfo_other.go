//go:build !linux

package proxy

import (
	"errors"
	"net"
)

// readTCPInfo knows nothing on systems other than Linux.
func readTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }
