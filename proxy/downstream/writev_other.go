//go:build !unix

package downstream

import "errors"

// writev is not implemented: this system has no socket writes that return instead of waiting.
func writev(uintptr, [][]byte) (rest [][]byte, err error) { return nil, errors.ErrUnsupported }
