//go:build !linux

package upstream

import "syscall"

// endDeadPeer leaves it to the keepalive where there is no TCP_USER_TIMEOUT.
func endDeadPeer(_, _ string, _ syscall.RawConn) error { return nil }
