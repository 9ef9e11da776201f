//go:build linux

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// momentLength is the time between two moments of a timeline.
const momentLength = 500 * time.Millisecond

// A timeline is a storm, moment by moment. It stands in a file beside the report, for bench/plot.
type timeline struct {
	Name    string   `json:"name"` // of the benchmark
	Round   int      `json:"round"`
	Moments []moment `json:"moments"`
}

// A moment is what happened since the moment before.
type moment struct {
	Seconds float64 `json:"seconds"` // since the storm's begin; negative before it
	Live    int64   `json:"live"`    // clients of the storm
	Cores   float64 `json:"cores"`   // processor time of all servers
	P99     float64 `json:"p99"`     // latency of the untouched, in seconds; 0 without a delivery

	at time.Time
}

// A stormRecorder takes moments until it is stopped.
type stormRecorder struct {
	stop    chan struct{}
	done    chan struct{} // closed when the others are set
	moments []moment
	err     error
}

// record begins a timeline. read returns the deliveries so far, and live the clients now.
func record(servers []measure.Process, every time.Duration, read func() *reading,
	live func() (int64, error)) *stormRecorder {
	r := &stormRecorder{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.run(servers, every, read, live)
	}()
	return r
}

func (r *stormRecorder) run(servers []measure.Process, every time.Duration, read func() *reading,
	live func() (int64, error)) {
	meter, err := measure.StartMeter(servers)
	if err != nil {
		r.err = err
		return
	}
	before := read()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		m := moment{at: time.Now()}
		used, err := meter.Lap()
		if err == nil {
			m.Live, err = live()
		}
		if err != nil {
			r.err = err
			return
		}
		now := read()
		sum := *now
		sum.sub(before)
		before = now
		m.Cores = round4(serversCPU(&used).Seconds() / used.Window.Seconds())
		m.P99 = round4(sum.latency.Quantile(0.99).Seconds())
		r.moments = append(r.moments, m)
	}
}

// end stops the stormRecorder. It returns the moments, with their times since the storm's begin.
func (r *stormRecorder) end(begin time.Time) ([]moment, error) {
	close(r.stop)
	<-r.done
	for i := range r.moments {
		m := &r.moments[i]
		m.Seconds = round4(m.at.Sub(begin).Seconds())
	}
	return r.moments, r.err
}

func round4(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// live returns how many clients are live now.
func (f *stormFront) live() (int64, error) {
	var st stormState
	text, err := os.ReadFile(f.states)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	return st.Live, err
}

// timelines returns the timelines of all samples that have one.
func (s *section) timelines() (all []timeline) {
	for i := range s.samples {
		if x := &s.samples[i]; x.err == nil && len(x.moments) > 0 {
			all = append(all, timeline{s.name(x), x.round, x.moments})
		}
	}
	return all
}

// publishTimelines writes timelines beside the report of the same name. An empty name, or no
// timeline, publishes nothing.
func publishTimelines(name string, all []timeline) error {
	if name == "" || len(all) == 0 {
		return nil
	}
	text, err := encodeTimelines(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("bench", "results", time.Now().Format(time.DateOnly)+"-"+name+".json"), text, 0o644)
}

// encodeTimelines returns a JSON list with a line for each timeline.
func encodeTimelines(all []timeline) ([]byte, error) {
	var lines []string
	for _, t := range all {
		text, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		lines = append(lines, string(text))
	}
	return []byte("[" + strings.Join(lines, ",\n") + "]\n"), nil
}
