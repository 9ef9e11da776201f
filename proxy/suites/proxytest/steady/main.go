package steady

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests for TestMain. If they pass, all goroutines must end, except lasting ones,
// which are those that libraries never end.
func Main(m *testing.M, lasting ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := leaks(Patience, lasting); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed, and left goroutines behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits until no goroutine is left. goleak itself waits for less than half a second.
func leaks(patience time.Duration, lasting []goleak.Option) error {
	deadline := time.Now().Add(patience)
	for {
		err := goleak.Find(lasting...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
