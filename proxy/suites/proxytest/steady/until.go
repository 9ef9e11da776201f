package steady

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long tests wait for anything. It only ends what hangs, because a machine that
// tests many packages at once is slow.
const Patience = 2 * time.Minute

// Until waits until f returns nil. What it waits for completes the sentence "there is no …", to which the
// test's failure adds f's last error.
func Until(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s after %s: %v", what, Patience, err)
		}
		time.Sleep(pause) //testlint:allow timer the condition is looked at again
	}
}

// UntilTrue is Until for a condition that says nothing more.
func UntilTrue(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if !holds() {
			return errors.New("it has not come")
		}
		return nil
	})
}

// Receive waits until c has a value or is closed. What it waits for completes the sentence "there is no …".
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience): //testlint:allow timer the patience of all tests
		t.Fatalf("there is no %s after %s", what, Patience)
		panic("unreachable")
	}
}
