//go:build !linux

package upstream

import "syscall"

// endDeadPeer does nothing: without TCP_USER_TIMEOUT, only the keepalive ends a dead connection.
func endDeadPeer(_, _ string, _ syscall.RawConn) error { return nil }
