//go:build !(linux && amd64)

package chaos_test

import (
	"errors"
	"time"
)

func jumpClock(int, time.Duration) error {
	return errors.New("only possible on linux on amd64")
}
