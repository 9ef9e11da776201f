//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Units of the rows that start watchfan.
const (
	unitReady         = "ready-ns"              // from the start of the process until /readyz says ok
	unitStartCPU      = "start-cpu-ns"          // of the new watchfan up to then
	unitStartUpstream = "start-upstream-cpu-ns" // of kube-apiserver meanwhile
	unitSeedCPU       = "start-sibling-cpu-ns"  // of the replica that is copied
	unitFilled        = "filled-ns"             // from the first joiner until the lane is filled
	unitWarm          = "warm-live-ns"          // until as many joiners are live at the filled lane
	unitLaneLists     = "lane-lists"            // lists of the whole collection at kube-apiserver
	unitLaneWatches   = "lane-watches"          // watches of it; a list that goes on as a watch is one, too
	unitGrown         = "grown-B"               // of resident memory
	unitOfObjects     = "x-objects"             // the same, as a multiple of the objects' bytes
)

// startTime bounds the start of a watchfan with its caches filled.
const startTime = 3 * time.Minute

// start starts a watchfan. It has the certificate of all replicas.
func (s *scaleBench) start(ctx context.Context, name string, flags ...string) (*proxy, error) {
	return startProxyWith(ctx, fmt.Sprintf("%s-%d", name, s.pods), s.opts.Watchfan, s.cluster, s.certificate, flags...)
}

// awaitReady waits until /readyz says ok, and returns the most resident memory on the way.
func (s *scaleBench) awaitReady(ctx context.Context, p *proxy) (peak int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("not ready after %v", startTime))
	defer cancel()
	for {
		costs, err := measure.ReadCosts([]measure.Process{p.process})
		if err != nil {
			return peak, fmt.Errorf("%w: %s", err, p.child.tail())
		}
		peak = max(peak, costs.RSS[p.process.Name])
		if _, err := p.admin.get(ctx, "/readyz"); err == nil {
			return peak, nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return peak, fmt.Errorf("%s: %w: %s", p.process.Name, context.Cause(ctx), p.child.tail())
		}
	}
}

// replicas measures the start of a first replica, and of a second one that fills its cache from the
// first. The first one becomes the peer.
func (s *scaleBench) replicas(ctx context.Context, round int) error {
	s.stopProxy()
	m, first, err := s.startReplica(ctx, "first")
	if s.proxy = first; err != nil {
		return err
	}
	if err := s.note(ctx, rowNamed("first"), watchfanTLS, round, m, nil); err != nil {
		return err
	}
	took, _ := find(m, unitReady)
	m, second, err := s.startReplica(ctx, "second", first)
	if second != nil {
		second.child.stop()
	}
	if ready, ok := find(m, unitReady); ok {
		m = append(m, metric{"x", ready / took})
	}
	return s.note(ctx, rowNamed("second"), watchfanTLS, round, m, err)
}

// stopProxy ends the peer watchfan, if there is one.
func (s *scaleBench) stopProxy() {
	if s.proxy != nil {
		s.proxy.child.stop()
	}
	s.proxy = nil
}

// startReplica starts a watchfan with all pods resident, and measures it. It fills its cache from a
// sibling, if there is one.
func (s *scaleBench) startReplica(ctx context.Context, name string, siblings ...*proxy) ([]metric, *proxy, error) {
	flags := []string{"--resident-resources=pods"}
	processes := s.cluster.processes
	for _, sibling := range siblings {
		flags = append(flags, "--seed-from="+sibling.tls.addr.String())
		processes = append(slices.Clone(processes), measure.Process{Name: "sibling", PID: sibling.process.PID})
	}
	if _, err := s.audit.count(); err != nil {
		return nil, nil, err
	}
	meter, err := measure.StartMeter(processes)
	if err != nil {
		return nil, nil, err
	}
	begin := time.Now()
	p, err := s.start(ctx, name, flags...)
	if err != nil {
		return nil, nil, err
	}
	peak, err := s.awaitReady(ctx, p)
	if err != nil {
		return nil, p, err
	}
	ready := time.Since(begin)
	own, err := p.process.CPU()
	if err != nil {
		return nil, p, err
	}
	used, err := meter.Read()
	if err != nil {
		return nil, p, err
	}
	if err := sleep(ctx, time.Second); err != nil { // it sends some requests later
		return nil, p, err
	}
	requests, err := s.audit.count()
	m := append(laneRequests(requests), metric{unitReady, float64(ready)}, metric{unitStartCPU, float64(own)},
		metric{unitStartUpstream, float64(used.CPU[direct.name])}, metric{"peak-B", float64(peak)})
	if len(siblings) > 0 {
		m = append(m, metric{unitSeedCPU, float64(used.CPU["sibling"])})
	}
	return m, p, err
}

// cold measures clients that come at once to a watchfan without a lane. Each asks for the latest
// state of its node, as kubelets do.
func (s *scaleBench) cold(ctx context.Context, round int) error {
	s.say("%d joiners at a cold lane", s.opts.Joiners)
	p, err := s.start(ctx, "cold")
	if err != nil {
		return err
	}
	defer p.child.stop()
	if _, err := s.awaitReady(ctx, p); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, rowTime, fmt.Errorf("not over after %v", rowTime))
	defer cancel()
	m, err := s.joinCold(bounded, p)
	return s.note(ctx, rowNamed("cold"), watchfanTLS, round, m, err)
}

// joinCold measures the joiners at p. Then as many come again, to the lane that is filled: what they
// take then is not due to the lane.
func (s *scaleBench) joinCold(ctx context.Context, p *proxy) ([]metric, error) {
	if _, err := s.audit.count(); err != nil {
		return nil, err
	}
	cold, filled, err := s.herd(ctx, p)
	if err != nil {
		return nil, err
	}
	requests, err := s.audit.count()
	if err != nil {
		return nil, err
	}
	warm, _, err := s.herd(ctx, p)
	m := append(cold.metrics(p.process.Name, s.opts.Joiners), metric{unitFilled, float64(filled)},
		metric{"x", cold.live.Seconds() / filled.Seconds()}, metric{unitWarm, float64(warm.live)},
		metric{"failed", float64(cold.done.Failed)},
		metric{unitPassed, float64(requests[passedLists] + requests[passedWatches])})
	return slices.Concat(m, laneRequests(requests), usageMetrics(&cold.used)), err
}

// herd lets all joiners connect at once, and returns when they are live. filled is the time until
// the lane was filled.
func (s *scaleBench) herd(ctx context.Context, p *proxy) (o stormOutcome, filled time.Duration, err error) {
	n := s.opts.Joiners
	var uris []string
	for i := range min(n, s.pods/scalePerNode) {
		uris = append(uris, resyncURI+choiceNode(s.pods, i).query)
	}
	front, err := startStormFront(ctx, priorityNormal, p.tls, uris, n, scalePerNode)
	if err != nil {
		return o, 0, err
	}
	defer front.stop()
	processes := append([]measure.Process{ownProcess(), p.process, front.process()}, s.cluster.processes...)
	meter, err := measure.StartMeter(processes)
	if err != nil {
		return o, 0, err
	}
	begin := time.Now()
	front.begin()
	o.done, err = front.await(ctx, n, func() (err error) {
		if o.used, err = meter.Read(); err != nil {
			return err
		}
		o.peak = max(o.peak, o.used.RSS[p.process.Name])
		if filled > 0 {
			return nil
		}
		lanes, err := podLanes(ctx, p)
		if lanes > 0 {
			filled = time.Since(begin)
		}
		return err
	})
	o.live = time.Unix(0, o.done.LastLive).Sub(begin)
	return o, filled, err
}

// laneRequests returns the lists and watches of lanes at kube-apiserver.
func laneRequests(requests map[string]int) []metric {
	return []metric{{unitLaneLists, float64(requests[auditLists])},
		{unitLaneWatches, float64(requests[auditLists] + requests[auditWatches])}}
}

// podSeries adds up a metric of the lanes of pods.
func podSeries(ctx context.Context, p *proxy, name string) (float64, error) {
	page, err := p.admin.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return sumSeries(string(page), name, `resource="pods"`)
}

// podLanes returns the number of lanes of pods that are filled.
func podLanes(ctx context.Context, p *proxy) (float64, error) {
	return podSeries(ctx, p, "watchfan_lane_synced")
}

// indexTime is how long an index may take to be built.
const indexTime = 20 * time.Second

// indexMemory returns the memory of the indexes that the joins before it have made necessary, by
// watchfan's own count.
func indexMemory(ctx context.Context, s *scaleBench, _ peer) ([]metric, error) {
	for deadline := time.Now().Add(indexTime); ; {
		indexes, err := podSeries(ctx, s.proxy, "watchfan_cache_indexes")
		if err != nil {
			return nil, err
		}
		if indexes >= 2 {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%v indexes after %v, want those that the rows join-node and join-label make necessary",
				indexes, indexTime)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	var v [3]float64
	for i, name := range []string{"watchfan_cache_indexes", "watchfan_cache_index_bytes", "watchfan_cache_bytes"} {
		var err error
		if v[i], err = podSeries(ctx, s.proxy, name); err != nil {
			return nil, err
		}
	}
	return []metric{{"indexes", v[0]}, {"index-B", v[1]}, {"objects-B", v[2]}, {"index-%", 100 * v[1] / v[2]}}, nil
}

// scaleForms are the representations whose memory is measured, by the row's name.
var scaleForms = []struct{ row, accept string }{
	{"memory-json", "application/json"},
	{"memory-protobuf", "application/vnd.kubernetes.protobuf"},
	{"memory-metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
}

// memory measures the resident memory that each representation adds to a new watchfan, and that of
// kube-apiserver with all pods. The servers are at rest.
func (s *scaleBench) memory(ctx context.Context) error {
	s.say("memory of the representations")
	p, err := s.start(ctx, "memory")
	if err != nil {
		return err
	}
	defer p.child.stop()
	if _, err := s.awaitReady(ctx, p); err != nil {
		return err
	}
	st := s.stage(p)
	before, err := st.rest(ctx)
	if err != nil {
		return err
	}
	objects := 0.0 // bytes
	for i, f := range scaleForms {
		after, bytes, err := s.fill(ctx, st, f.accept, i+1)
		if err != nil {
			return err
		}
		grown, own := float64(after.RSS[p.process.Name]-before.RSS[p.process.Name]), bytes-objects
		before, objects = after, bytes
		m := []metric{{unitGrown, grown}, {"objects-B", own}, {unitOfObjects, grown / own}}
		if err := s.note(ctx, rowNamed(f.row), watchfanTLS, 1, m, nil); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		grown = float64(after.RSS[direct.name] - s.empty)
		m = []metric{{unitGrown, grown}, {unitOfObjects, grown / own}}
		if err := s.note(ctx, rowNamed(f.row), direct, 1, m, nil); err != nil {
			return err
		}
	}
	return nil
}

// fill lets watchfan cache pods in one more representation, the n-th. It returns what the servers
// use then, at rest, and the bytes of the objects in all representations.
func (s *scaleBench) fill(ctx context.Context, st *stage, accept string, n int) (measure.Costs, float64, error) {
	if err := fillPods(ctx, st.proxy, accept, n); err != nil {
		return measure.Costs{}, 0, err
	}
	costs, err := st.rest(ctx)
	if err != nil {
		return costs, 0, err
	}
	bytes, err := podSeries(ctx, st.proxy, "watchfan_cache_bytes")
	return costs, bytes, err
}

// fillPods lets a watchfan cache pods in one more representation, the n-th, and returns when it has
// them.
func fillPods(ctx context.Context, p *proxy, accept string, n int) error {
	const nothing = podsPath + "?resourceVersion=0&fieldSelector=metadata.name%3Dnobody"
	for deadline := time.Now().Add(startTime); ; {
		_, err := p.tls.getAs(ctx, nothing, accept)
		if err != nil {
			return err
		}
		lanes, err := podLanes(ctx, p)
		if err != nil || lanes >= float64(n) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s not filled after %v", accept, startTime)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
