//go:build !linux

package downstream

import "net"

// HasLeft does not know on systems other than Linux; reading will tell.
func HasLeft(*net.TCPConn) bool { return false }
