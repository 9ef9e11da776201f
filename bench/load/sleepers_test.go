package load

import (
	"strings"
	"testing"
)

// TestWake: the fate of a stream that is read late follows from its events.
func TestWake(t *testing.T) {
	t.Parallel()
	event := func(seq uint64) string { return string(modified(seq, "")) + "\n" }
	f := func(name string, want fate, wantErr string, lines ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // waits for a silent stream
			s, f, _ := startFleet(t, plain, 0, []Filter{Everything})
			all, err := f.AddDeaf(t.Context(), 1, []uint64{0, 1, 2, 3})
			if err != nil {
				t.Fatal(err)
			}
			defer all.Close()
			for _, line := range lines {
				s.say(0, line)
			}
			got, err := all.Wake(t.Context(), []uint64{4, 5, 2, 3})
			if got[want] != 1 || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
				t.Errorf("got %v, %v want %v, %q", got, err, want, wantErr)
			}
		})
	}
	f("caught up", CaughtUp, "", event(4), event(5))
	f("ended", Ended, "", event(4), "")
	f("silent", Silent, "", event(4))
	f("gap", Ended, "got write 12 after 4", event(4), event(12))
}
