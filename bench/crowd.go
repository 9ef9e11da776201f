//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

func crowdSection() *section {
	return &section{
		bench: "Crowd",
		title: "A crowd of idle watchers, plaintext, and three events that reach them in the end",
		note: "Kernel memory covers both ends of each connection, which are on this machine. " +
			"Latency is to the last byte of each watcher.",
		columns: crowdColumns,
	}
}

var crowdColumns = []column{
	{"KiB/watcher", unitMemory, 1.0 / 1024}, {"kernel KiB/watcher", unitKernel, 1.0 / 1024},
	{"TCP buffers KiB/watcher", unitBuffers, 1.0 / 1024},
	{"RSS MiB", "RSS-B", 1.0 / (1 << 20)}, {"connected/s", "connected/s", 1},
	{"CPU µs/delivery", unitCPU, 1e-3}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
	{"last ms", "last-ns", 1e-6},
}

const (
	crowdEvents = 3               // events for the crowd, one after the other
	crowdTime   = 4 * time.Minute // for all of it
)

// crowd measures very many idle watchers at watchfan's plaintext port. kube-apiserver has no such
// port, and the traffic part has a row for idle watchers over TLS.
func (p *program) crowd(ctx context.Context, st *stage) error {
	if st.peer != watchfanBare {
		return nil
	}
	asked := p.opts.Crowd
	n := min(asked, roomFor())
	x := sample{peer: st.peer, axes: []axis{{"clients", strconv.Itoa(n)}}}
	if n < asked {
		x.remark = fmt.Sprintf("not %d: this process may have %d open files, and watchfan as many; "+
			"raise the hard limit (ulimit -Hn)", asked, n+otherFiles)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, crowdTime, fmt.Errorf("not done after %v", crowdTime))
	defer cancel()
	x.metrics, x.err = p.measureCrowd(ctx, st, n, func(f *fleet) {
		f.dialer = func(i int) measure.Dialer {
			const perAddress = 20_000 // of the 28,000 ports of an address
			return measure.Dialer{From: netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i/perAddress)})}
		}
	})
	return p.note(context.WithoutCancel(ctx), st, partCrowd, x, 9)
}

// measureCrowd measures n watchers. prepare gets their fleet before they come.
func (p *program) measureCrowd(ctx context.Context, st *stage, n int, prepare func(*fleet)) ([]metric, error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err != nil {
		return nil, err
	}
	prepare(s.fleet)
	if err := s.measureIdle(ctx, n); err != nil {
		return nil, err
	}
	idle := s.done[0]
	m := append(idle.metrics(), metric{"connected/s", float64(n) / idle.Window.Seconds()})

	meter, err := measure.StartMeter(withBench(st))
	if err != nil {
		return nil, err
	}
	var last time.Duration
	for object := range crowdEvents {
		start := time.Now()
		s.fleet.expect(object)
		if err := st.writer.update(object); err != nil {
			return nil, err
		}
		if err := s.fleet.drain(ctx, time.Minute); err != nil {
			return nil, err
		}
		last = max(last, time.Since(start))
	}
	used, err := meter.Read()
	got := s.fleet.read()
	return append(m,
		metric{unitCPU, float64(used.CPU[st.peer.name]) / float64(got.deliveries)},
		metric{unitP50, float64(got.latency.Quantile(0.50))},
		metric{unitP99, float64(got.latency.Quantile(0.99))},
		metric{"last-ns", float64(last)},
		metric{"others-cpu-%", used.Percent(used.Others)}), err
}
