package steady

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// recorder notes how a test fails.
type recorder struct {
	testing.TB
	cleanup []func()
	said    string
	failed  bool
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Logf(format string, args ...any) {
	r.said += fmt.Sprintf(format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = true
	r.Logf(format, args...)
	panic(r)
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		Until(t, "third call", func() error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); calls != 3 || took > 10*time.Millisecond {
			t.Errorf("%d calls in %s", calls, took)
		}
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			Until(r, "lane", func() error { return errors.New("it is away") })
		}()
		if want := "there is no lane after 2m0s: it is away"; r.said != want {
			t.Errorf("got %q, want %q", r.said, want)
		}
	})
}

func TestRand(t *testing.T) {
	t.Setenv("TEST_SEED", "")
	r := &recorder{TB: t}
	one, again := Rand(r).Uint64(), Rand(t).Uint64()
	t.Setenv("TEST_SEED", "7")
	if other := Rand(t).Uint64(); one != again || one == other {
		t.Errorf("seed 1 gives %d and %d, seed 7 gives %d", one, again, other)
	}
	r.failed = true
	r.cleanup[0]()
	if want := "random numbers of TEST_SEED=1"; r.said != want {
		t.Errorf("got %q, want %q", r.said, want)
	}
	t.Setenv("TEST_SEED", "x")
	defer func() {
		if recover() != r {
			t.Error("a seed that is no number is taken")
		}
	}()
	Rand(r)
}

// A goroutine that ends late is no leak, and one that stays is.
func TestLeaks(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	if err := leaks(0, nil); err == nil {
		t.Error("a goroutine that stays is no leak")
	}
	close(end)
	if err := leaks(Patience, nil); err != nil {
		t.Error(err)
	}
}
