//go:build linux

package main

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A timeline has the processor time, the clients and the latency of each moment by itself.
func TestRecorder(t *testing.T) {
	var latency measure.Histogram
	var live, deliveries atomic.Int64
	read := func() *reading {
		var r reading
		r.latency.Add(&latency)
		r.deliveries = uint64(deliveries.Load())
		return &r
	}
	burn := make(chan struct{})
	go func() { // half the time of this test
		for begin := time.Now(); time.Since(begin) < time.Second; {
		}
		close(burn)
	}()
	server := measure.Process{Name: "server", PID: os.Getpid()}
	r := record([]measure.Process{server}, 20*time.Millisecond, read, func() (int64, error) { return live.Load(), nil })
	time.Sleep(100 * time.Millisecond)
	latency.Record(10 * time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	live.Store(5)
	begin := time.Now()
	latency.Record(time.Second)
	<-burn
	moments, err := r.end(begin)
	if err != nil || len(moments) < 5 {
		t.Fatalf("%d moments, %v", len(moments), err)
	}
	var fast, slow, busy int
	for i, m := range moments {
		if i > 0 && m.Seconds <= moments[i-1].Seconds {
			t.Errorf("moment %d at %v s, after %v s", i, m.Seconds, moments[i-1].Seconds)
		}
		if m.Seconds < 0 && m.P99 > .009 && m.P99 < .011 && m.Live == 0 {
			fast++
		}
		if m.Seconds >= 0 && m.P99 > .9 && m.Live == 5 {
			slow++
		}
		if m.Cores > .05 {
			busy++
		}
	}
	if fast != 1 || slow != 1 || busy == 0 {
		t.Errorf("%d moments have the first delivery, %d the second, and %d processor time: %+v", fast, slow, busy, moments)
	}
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
