//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

func crowdSection(*Options) *section {
	return &section{
		bench: "Crowd",
		title: "A crowd of idle watchers, and three events that reach them in the end",
		note: fmt.Sprintf("h1 = plaintext, a connection for each. h2 = TLS, %d on a connection. ", mostStreams) +
			"Latency is to the last byte of each watcher.",
		columns: []column{
			{"KiB/watcher", unitMemory, 1.0 / 1024},
			{"RSS MiB", "RSS-B", 1.0 / (1 << 20)}, {"connected/s", "connected/s", 1},
			{"CPU µs/delivery", unitCPU, 1e-3}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
			{"last ms", "last-ns", 1e-6},
		},
	}
}

const (
	crowdEvents = 3               // events for the crowd, one after the other
	crowdTime   = 4 * time.Minute // for all of it
)

// oneUser lets one user have all watches.
func oneUser(*Options) []string { return []string{"--max-watches-per-user=0"} }

// crowd measures very many idle watchers at watchfan: over HTTP/1.1 at its plaintext port, and over
// HTTP/2 at the other. kube-apiserver would need 5 GiB for as many; traffic and http2 have rows for
// fewer.
func (p *program) crowd(ctx context.Context, st *stage) error {
	if st.peer == direct {
		return nil
	}
	n, protocol, remark := p.opts.HTTP2Crowd, http20, ""
	if asked := p.opts.Crowd; !st.peer.tls {
		n, protocol = min(asked, roomFor()), http11
		if n < asked {
			remark = fmt.Sprintf("not %d: this process may have %d open files, and watchfan as many; "+
				"raise the hard limit (ulimit -Hn)", asked, n+otherFiles)
		}
	}
	x := sample{peer: st.peer, axes: axes("protocol", protocol, "clients", n), remark: remark}
	bounded, cancel := context.WithTimeoutCause(ctx, crowdTime, fmt.Errorf("not done after %v", crowdTime))
	defer cancel()
	x.metrics, x.err = p.measureCrowd(bounded, st, protocol, n)
	return p.note(ctx, st, "Crowd", x)
}

func (p *program) measureCrowd(ctx context.Context, st *stage, by protocol, n int) ([]metric, error) {
	s := p.session(st)
	defer s.disband()
	var l load
	if by == http20 {
		l.h2 = &multiplex{mostStreams, largeSteps}
	}
	if err := s.assemble(l); err != nil {
		return nil, err
	}
	s.fleet.dialer = func(i int) measure.Dialer {
		const perAddress = 20_000 // of the 28,000 ports of an address
		return measure.Dialer{From: netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i/perAddress)})}
	}
	m, err := s.idle(ctx, n)
	if err != nil {
		return nil, err
	}
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
