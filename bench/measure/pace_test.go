package measure

import (
	"testing"
	"testing/synctest"
	"time"
)

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
