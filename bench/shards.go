//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
)

const unitReached = "deliveries/event"

func shardsSection(o *Options) *section {
	n := o.LeanClients
	halves, all := shardAxes(n, 2), shardAxes(2*n, 1)
	return &section{
		bench: "Shards",
		title: fmt.Sprintf("Two shards of %d watchers each, TLS, HTTP/1.1: status updates of pods, %v/s", n, o.LeanRate),
		note: "The shards are halves of all pods (shardSelector by uid). " +
			"A watcher takes no event of a pod that is not in its half. " +
			"kube-apiserver ignores shardSelector without its feature gate, so it has no halves. " +
			"The dispatch part has the cost of finding an event's shard.",
		columns: []column{
			{"deliveries/event", unitReached, 1}, {"CPU ms/event", unitEvent, 1e-6}, {"CPU µs/delivery", unitCPU, 1e-3},
			{"all servers", unitAllCPU, 1e-3}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
		},
		goals: []goal{
			{fmt.Sprintf("deliveries of an event to two shards of %d", n), unitReached, halves, nil, float64(n)},
			{fmt.Sprintf("CPU per event, two shards of %d / %d that want all", n, 2*n), unitEvent, halves, all, 0},
			{"CPU per delivery, the same", unitCPU, halves, all, 0},
		},
	}
}

// shardAxes returns the axes of n watchers in each of some shards.
func shardAxes(n, shards int) []axis {
	return []axis{{"shards", strconv.Itoa(shards)}, {"clients", strconv.Itoa(n)}}
}

// shards measures one peer, over TLS.
func (p *program) shards(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	halves, err := podHalves(ctx, st)
	if err != nil {
		return err
	}
	n := p.opts.LeanClients
	for _, filters := range [][]filter{{everything}, halves} {
		if len(filters) > 1 && st.peer == direct {
			continue
		}
		x := sample{peer: st.peer, axes: shardAxes(2*n/len(filters), len(filters))}
		x.metrics, x.err = p.measureShards(ctx, st, filters)
		if err := p.note(ctx, st, partShards, x, 3); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureShards(ctx context.Context, st *stage, filters []filter) ([]metric, error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet(filters, p.opts.readers()); err != nil {
		return nil, err
	}
	n := 2 * p.opts.LeanClients
	if err := s.fleet.grow(ctx, n, st.book().seqs); err != nil {
		return nil, err
	}
	acked := st.book().acked.Load()
	r := s.measure(ctx, n, p.opts.offered(p.opts.LeanRate, n))
	if r.err != nil {
		return nil, r.err
	}
	// The whole case counts here, because the window may cut an event's deliveries.
	reached := float64(s.fleet.read().deliveries) / float64(st.book().acked.Load()-acked)
	m := r.metrics()
	cpu, _ := find(m, unitCPU)
	return append(m, metric{unitReached, reached}, metric{unitEvent, cpu * reached}), nil
}

// podHalves returns the filters of two shards, which divide the pods by the hashes of their uids.
func podHalves(ctx context.Context, st *stage) ([]filter, error) {
	body, err := st.cluster.getAs(ctx, podsPath, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID string }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("list pods' metadata: %w", err)
	}
	uids := make(map[string]string) // by path
	for _, i := range list.Items {
		uids[pod{namespace: i.Metadata.Namespace, name: i.Metadata.Name}.path()] = i.Metadata.UID
	}
	lower := make([]bool, st.coll.objects)
	for o := range lower {
		uid := uids[newPod(o).path()]
		if uid == "" {
			return nil, fmt.Errorf("pod %d has no uid", o)
		}
		lower[o] = shardHash(uid) < 1<<63
	}
	return []filter{
		{shardQuery("0x0000000000000000", "0x8000000000000000"), func(o int) bool { return lower[o] }},
		{shardQuery("0x8000000000000000", "0x10000000000000000"), func(o int) bool { return !lower[o] }},
	}, nil
}

// shardHash returns the hash of a uid, as KEP-5866 has it: FNV-1a of 64 bits.
func shardHash(uid string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(uid))
	return h.Sum64()
}

// shardQuery returns the query of the shard with hashes from first up to end.
func shardQuery(first, end string) string {
	return "&shardSelector=" + url.QueryEscape(fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')", first, end))
}
