//go:build linux

package main

import (
	"bytes"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A timeline has the processor time, the clients and the latency of each moment by itself.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var latency measure.Histogram
		var live atomic.Int64
		read := func() *reading {
			var r reading
			r.latency.Add(&latency)
			return &r
		}
		server := measure.Process{Name: "server", PID: os.Getpid()}
		r := record([]measure.Process{server}, time.Second, read, func() (int64, error) { return live.Load(), nil })
		time.Sleep(1500 * time.Millisecond)
		latency.Record(10 * time.Millisecond)
		time.Sleep(time.Second)
		begin := time.Now()
		live.Store(5)
		latency.Record(time.Second)
		var used syscall.Rusage
		for until := int64(0); until == 0 || used.Utime.Nano() < until; { // a tenth of a core for a second
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
				t.Fatal(err)
			}
			if until == 0 {
				until = used.Utime.Nano() + int64(100*time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		moments, err := r.end(begin)
		if err != nil || len(moments) != 3 {
			t.Fatalf("%d moments, %v", len(moments), err)
		}
		for i, want := range []moment{{Seconds: -1.5}, {Seconds: -.5, P99: .01}, {Seconds: .5, Live: 5, P99: 1}} {
			got := moments[i]
			near := got.P99 >= .98*want.P99 && got.P99 <= 1.02*want.P99
			if !near || got.Seconds != want.Seconds || got.Live != want.Live {
				t.Errorf("moment %d: got %+v want %+v", i, got, want)
			}
		}
		if got := moments[2].Cores; got < .05 {
			t.Errorf("%v cores, want .1 or more", got)
		}
	})
}

// A process that has ended ends the timeline, with an error.
func TestRecorderOfNothing(t *testing.T) {
	r := record([]measure.Process{{Name: "none", PID: 1 << 30}}, time.Millisecond, nil, nil)
	if moments, err := r.end(time.Now()); err == nil || len(moments) > 0 {
		t.Errorf("got %v, %v", moments, err)
	}
}

// The file beside a report is what bench/plot reads: its test reads the same file.
func TestTimelineFile(t *testing.T) {
	s := stormSection(defaults())
	axes := []axis{{"storm", "informers"}, {"priority", "idle"}, {"clients", "5000"}}
	s.add(sample{peer: direct, round: 1, axes: axes,
		moments: []moment{{Seconds: -.5, Cores: .25, P99: .01}, {Seconds: .5, Live: 2500, Cores: 1.5}}},
		sample{peer: peer{"watchfan", true}, round: 1, axes: axes,
			moments: []moment{{Seconds: -.25, Cores: .25, P99: .01}, {Seconds: .25, Live: 5000, Cores: 1.25, P99: .125}}},
		sample{peer: direct, round: 2, err: os.ErrDeadlineExceeded, moments: []moment{{}}}, sample{peer: direct, round: 3})
	got, err := encodeTimelines(s.timelines())
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/timeline.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
