//go:build linux

package measure

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPaceKeepsItsTimetable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace{Start: time.Now(), Rate: 100}
		for i := range uint64(50) {
			if _, err := p.Wait(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(p.Start), time.Duration(i)*10*time.Millisecond; got != want {
				t.Fatalf("operation %d started at %v want %v", i, got, want)
			}
		}
	})
}

// TestPaceIsOpenLoop: after a stall of 200 ms a server gets the missed operations at once, not
// spread out later.
func TestPaceIsOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace{Start: time.Now(), Rate: 100}
		var late []time.Duration
		for i := range uint64(30) {
			d, err := p.Wait(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, d)
			if i == 5 {
				time.Sleep(200 * time.Millisecond) // the server stalls
			}
		}
		if got, want := late[6], 190*time.Millisecond; got != want {
			t.Errorf("first operation after the stall: late by %v want %v", got, want)
		}
		if late[29] != 0 {
			t.Errorf("operation 29 is late by %v: it should have caught up", late[29])
		}
		if got, want := time.Since(p.Start), 290*time.Millisecond; got != want {
			t.Errorf("30 operations at 100/s took %v want %v", got, want)
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		p := Pace{Start: time.Now(), Rate: 1}
		if _, err := p.Wait(ctx, 1); err != context.DeadlineExceeded {
			t.Errorf("got %v want deadline exceeded", err)
		}
		if got := time.Since(p.Start); got != 15*time.Millisecond {
			t.Errorf("gave up after %v want 15ms", got)
		}
	})
}

func TestNoPaceNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace{Start: time.Now()}
		for i := range uint64(1000) {
			if late, err := p.Wait(t.Context(), i); late != 0 || err != nil {
				t.Fatalf("got %v, %v want 0, nil", late, err)
			}
		}
		if d := time.Since(p.Start); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}
