//go:build !unix

package downstream

import (
	"errors"
	"syscall"
)

// readSocket is not needed where watchfan does not serve; see NewPoller.
func readSocket(syscall.RawConn, []byte, bool) (int, error) { return 0, errors.ErrUnsupported }
