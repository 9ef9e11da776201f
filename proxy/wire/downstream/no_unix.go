//go:build !unix

package downstream

import (
	"errors"
	"net"
	"syscall"
)

// ListenShared is not implemented: ports are not shared on this system.
func ListenShared(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// PortFree is not needed without ListenShared.
func PortFree(*net.TCPAddr) (bool, error) { return false, errors.ErrUnsupported }

// readSocket is not needed where watchfan does not serve; see NewPoller.
func readSocket(syscall.RawConn, []byte, bool) (int, error) { return 0, errors.ErrUnsupported }

// writeSocket is not needed either.
func writeSocket(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

func nothingCame(uintptr) bool { return false }

// writev is not implemented: this system has no socket writes that return instead of waiting.
func writev(uintptr, [][]byte) (rest [][]byte, err error) { return nil, errors.ErrUnsupported }
