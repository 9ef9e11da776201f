//go:build !linux

package downstream

import (
	"errors"
	"net"
)

// ReadTCPInfo knows nothing on systems other than Linux.
func ReadTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }

// HasLeft does not know on systems other than Linux; reading will tell.
func HasLeft(*net.TCPConn) bool { return false }
