//go:build !linux

package downstream

import (
	"errors"
	"net"
)

// ReadTCPInfo knows nothing on systems other than Linux.
func ReadTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }
