//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// Units of resyncs.
const (
	unitResyncCPU    = "cpu-ns/client"     // of the delivering server
	unitAllResyncCPU = "all-cpu-ns/client" // of all servers
	unitResyncBytes  = "B/client"
	unitScaled       = "scaled-cpu-s" // of all servers, in proportion for ResyncScale clients
)

func resyncSection(o *Options) *section {
	return &section{
		bench: "Resync",
		title: fmt.Sprintf("Clients that all begin a watch of %d pods at once, "+
			"with initial events and the bookmark that ends them", o.Pods),
		note: fmt.Sprintf("With fewer clients than %d (see the column), CPU-s for %d is in proportion. "+
			"That flatters a server that would slow down with more. "+
			"Wall time is to the last byte of the last client. One client decompresses its stream and checks it.",
			o.ResyncScale, o.ResyncScale),
		columns: []column{
			{"CPU ms/client", unitResyncCPU, 1e-6}, {"all servers", unitAllResyncCPU, 1e-6},
			{"MB/client", unitResyncBytes, 1e-6}, {"clients", "clients", 1}, {"wall s", "wall-ns", 1e-9},
			{fmt.Sprintf("CPU-s for %d", o.ResyncScale), unitScaled, 1},
			{"MB/s", "MB/s", 1}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: 3,
	}
}

// resyncTime bounds one case.
const resyncTime = 5 * time.Minute

// resync measures one peer with clients that all come at once.
func (p *program) resync(ctx context.Context, st *stage) error {
	for _, gzip := range []bool{false, true} {
		n := p.opts.ResyncClients
		if st.peer == direct {
			n = p.opts.ResyncDirect
		}
		x := sample{peer: st.peer, axes: axes("asked", asked(gzip))}
		bounded, cancel := context.WithTimeout(ctx, resyncTime)
		x.metrics, x.remark, x.err = p.measureResync(bounded, st, n, gzip)
		cancel()
		if err := p.note(ctx, st, "Resync", x); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureResync(ctx context.Context, st *stage, n int, gzip bool) ([]metric, string, error) {
	crowd, err := newSyncers(st.endpoint(), n, gzip, allPods(st.coll.objects))
	defer crowd.close()
	if err != nil {
		return nil, "", err
	}
	// One client comes first. A server that fills its cache does so then, and not within the window.
	if err := warmSync(ctx, st, gzip); err != nil {
		return nil, "", err
	}
	used, wall, err := crowd.measure(ctx, withBench(st))
	if err != nil {
		return nil, "", err
	}
	remark := ""
	if gzip && !crowd.compressed() {
		remark = "answered without compression"
	}
	bytes, all := float64(crowd.bytes()), float64(serversCPU(&used))
	count := float64(n)
	m := []metric{
		{"clients", count}, {"wall-ns", float64(wall)},
		{unitResyncCPU, float64(used.CPU[st.peer.name]) / count},
		{unitAllResyncCPU, all / count},
		{unitScaled, all / 1e9 / count * float64(p.opts.ResyncScale)},
		{unitResyncBytes, bytes / count}, {"MB/s", bytes / 1e6 / wall.Seconds()},
		{"RSS-B", float64(used.RSS[st.peer.name])},
	}
	return append(m, usageMetrics(&used)...), remark, nil
}

// warmSync is a resync of one client.
func warmSync(ctx context.Context, st *stage, gzip bool) error {
	one, err := newSyncers(st.endpoint(), 1, gzip, allPods(st.coll.objects))
	defer one.close()
	if err == nil {
		err = one.ask()
	}
	if err == nil {
		_, err = one.await(ctx, func() error { return nil })
	}
	return err
}
