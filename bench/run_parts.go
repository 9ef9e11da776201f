//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// The parts of `bench run`, in their order. Each has a file of its name.
const (
	partTraffic      = "traffic" // with the floor
	partDispatch     = "dispatch"
	partStalled      = "stalled"
	partCrowd        = "crowd"
	partHTTP2        = "http2"
	partHTTP2Stalled = "http2stalled"
	partHTTP2Crowd   = "http2crowd"
	partClientGo     = "clientgo"
	partResync       = "resync"
	partEgress       = "egress"
	partNodes        = "nodes"
	partLean         = "lean"
	partLeanLists    = "leanlists"
	partLeanMemory   = "leanmemory"
	partShards       = "shards"
	partSelfCheck    = "selfcheck"
	partStorm        = "storm"
	partSlices       = "slices"
)

var allParts = []string{partTraffic, partDispatch, partStalled, partCrowd,
	partHTTP2, partHTTP2Stalled, partHTTP2Crowd, partClientGo, partResync, partEgress, partNodes,
	partLean, partLeanLists, partLeanMemory, partShards, partSelfCheck, partStorm, partSlices}

// The parts with servers, by what they watch.
var (
	onConfigMaps = []string{partStalled, partCrowd, partHTTP2, partHTTP2Stalled, partHTTP2Crowd, partClientGo,
		partStorm}
	onPods = []string{partResync, partEgress, partNodes, partLean, partLeanLists, partLeanMemory, partShards,
		partSelfCheck}
)

// A program runs the parts that have a section, and holds their samples.
type program struct {
	opts     *Options
	say      func(format string, args ...any)
	round    int
	sections map[string]*section // by part
	audit    *auditLog           // of ConfigMaps, for storms
	moments  []moment            // of the last storm, for its sample
}

func newProgram(o *Options, say func(string, ...any)) *program {
	return &program{opts: o, say: say, sections: map[string]*section{
		partDispatch: dispatchSection(), partStalled: stalledSection(o), partCrowd: crowdSection(),
		partHTTP2: http2Section(o), partHTTP2Stalled: http2StalledSection(o), partHTTP2Crowd: http2CrowdSection(),
		partClientGo: clientGoSection(o),
		partResync:   resyncSection(o), partEgress: egressSection(o), partNodes: nodesSection(o),
		partLean: leanSection(o), partLeanLists: leanListsSection(o), partLeanMemory: leanMemorySection(o),
		partShards: shardsSection(o), partSelfCheck: selfCheckSection(o),
		partStorm: stormSection(o), partSlices: slicesSection(o),
	}}
}

// inOrder returns the sections in the order of the report.
func (p *program) inOrder() (sections []*section) {
	for _, part := range allParts {
		if s := p.sections[part]; s != nil {
			sections = append(sections, s)
		}
	}
	return sections
}

// run measures all sections that are asked for, once. Sections with servers share one cluster. Each
// has its own watchfan, and the peers take turns within it.
func (p *program) run(ctx context.Context, round int) error {
	p.round = round
	if p.wants(partDispatch) {
		if err := p.dispatch(ctx); err != nil {
			return err
		}
	}
	if !p.wants(onConfigMaps...) && !p.wants(onPods...) && !p.wants(partSlices) {
		return nil
	}
	p.say("starting a dev cluster")
	var flags []string // of the dev cluster
	if p.wants(partStorm) {
		dir, err := os.MkdirTemp("", "watchfan-bench-audit-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if p.audit, err = newAuditLog(dir, "configmaps", watcherAgent); err != nil {
			return err
		}
		flags = p.audit.flags()
	}
	cluster, err := startCluster(ctx, p.opts.Devcluster, flags...)
	if err != nil {
		return err
	}
	defer cluster.stop()
	if p.wants(onConfigMaps...) {
		if err := p.configMaps(ctx, cluster); err != nil {
			return err
		}
	}
	if p.wants(partSlices) {
		if err := p.measureSlices(ctx, cluster); err != nil {
			return err
		}
	}
	if p.wants(onPods...) {
		return p.pods(ctx, cluster)
	}
	return nil
}

func (p *program) wants(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(p.opts.Parts, part) })
}

// configMaps measures the parts that watch ConfigMaps.
func (p *program) configMaps(ctx context.Context, cluster *cluster) error {
	st := &stage{cluster: cluster, coll: &collection{namespace: "bench", objects: p.opts.Objects}}
	st.writer = newWriter(cluster, st.coll, newAcks(), p.opts)
	defer st.writer.client.CloseIdleConnections()
	if err := st.writer.createConfigMaps(ctx, p.opts.EventSize); err != nil {
		return err
	}
	bounded := []string{fmt.Sprintf("--client-buffer-frames=%d", p.opts.StalledBound)}
	for _, part := range []struct {
		name    string
		flags   []string // of watchfan
		measure func(context.Context, *stage) error
	}{
		{partStalled, bounded, p.stalled}, {partCrowd, nil, p.crowd}, {partHTTP2, nil, p.http2},
		{partHTTP2Stalled, bounded, p.http2Stalled}, {partHTTP2Crowd, []string{"--max-watches-per-user=0"}, p.http2Crowd},
		{partClientGo, nil, p.clientGo},
	} {
		if !p.wants(part.name) {
			continue
		}
		if err := p.behind(ctx, st, part.flags, part.measure); err != nil {
			return err
		}
		if part.name == partHTTP2 {
			if err := p.http2Floor(ctx, st.coll); err != nil {
				return err
			}
		}
	}
	if p.wants(partStorm) {
		if err := createStormObjects(ctx, st.writer); err != nil {
			return err
		}
		return p.behind(ctx, st, nil, p.storm)
	}
	return nil
}

// pods measures the parts that watch pods.
func (p *program) pods(ctx context.Context, cluster *cluster) error {
	coll := &collection{objects: p.opts.Pods}
	st := &stage{cluster: cluster, coll: coll, writer: newWriter(cluster, coll, newAcks(), p.opts)}
	defer st.writer.client.CloseIdleConnections()
	form := func(i int) pod { return newPod(i).on(coll.node(i)).written(uint64(i), 0) }
	if err := createPods(ctx, st.writer, 0, coll.objects, form, p.say); err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		flags   []string // of watchfan
		measure func(context.Context, *stage) error
	}{
		{partEgress, nil, p.egress}, {partNodes, nil, p.nodes}, {partResync, nil, p.resync},
		{partLeanLists, nil, p.leanLists}, {partLean, nil, p.lean}, {partShards, nil, p.shards},
		{partSelfCheck, []string{"--self-check-interval=" + selfCheckInterval.String()}, p.selfCheck},
	} {
		if !p.wants(part.name) {
			continue
		}
		if err := p.behind(ctx, st, part.flags, part.measure); err != nil {
			return err
		}
	}
	if p.wants(partLeanMemory) {
		return p.leanMemory(ctx, st)
	}
	return nil
}

// behind calls measure for each peer in turn, with a new watchfan in front of the stage's cluster.
func (p *program) behind(ctx context.Context, st *stage, flags []string,
	measure func(context.Context, *stage) error) (err error) {
	if slices.ContainsFunc(p.opts.Peers, func(peer peer) bool { return peer != direct }) {
		if st.proxy, err = startProxy(ctx, p.opts.Watchfan, st.cluster, flags...); err != nil {
			return err
		}
		defer func() {
			st.proxy.child.stop()
			st.proxy = nil
		}()
	}
	for _, peer := range p.opts.Peers {
		st.peer = peer
		if err := measure(ctx, st); err != nil {
			return errors.Join(fmt.Errorf("%v: %w", peer, err), st.alive())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// note adds a sample to a section and logs its first columns. It returns an error if the run cannot
// continue.
func (p *program) note(ctx context.Context, st *stage, part string, x sample, columns int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x.round = p.round
	s := p.sections[part]
	s.add(x)
	if x.err != nil {
		p.say("%s: FAILED: %v", s.name(&x), x.err)
		if st != nil {
			return st.alive()
		}
		return nil
	}
	text := s.name(&x) + ":"
	for _, c := range s.columns[:min(columns, len(s.columns))] {
		if v, ok := x.get(c.unit); ok {
			text += fmt.Sprintf("  %s %s", human(v*c.scale), c.title)
		}
	}
	if x.remark != "" {
		text += "  (" + x.remark + ")"
	}
	p.say("%s", text)
	return nil
}

// sectionsEstimate guesses the duration of one round of the sections.
func (o *Options) sectionsEstimate() (d time.Duration) {
	guess := map[string]time.Duration{
		partDispatch: 5 * time.Second, partStalled: 80 * time.Second, partCrowd: 30 * time.Second,
		partHTTP2: 150 * time.Second, partHTTP2Stalled: 60 * time.Second, partHTTP2Crowd: 60 * time.Second,
		partClientGo: 60 * time.Second,
		partResync:   70 * time.Second, partEgress: 60 * time.Second, partNodes: 50 * time.Second,
		partLean: 70 * time.Second, partLeanLists: 30 * time.Second, partLeanMemory: 20 * time.Second,
		partShards: 30 * time.Second, partSelfCheck: 400 * time.Second,
		partStorm: 320 * time.Second, partSlices: 190 * time.Second,
	}
	for _, part := range o.Parts {
		d += guess[part]
	}
	return d
}
