//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Units of `bench scale`. A request is a list, or a watch up to the end of its initial events.
const (
	unitRequestCPU    = "cpu-ns/request"     // of the answering server
	unitAllRequestCPU = "all-cpu-ns/request" // of all servers
	unitWall          = "wall-ns"            // until the last client has everything
	unitRequestBytes  = "B/request"
	unitProofs        = "proofs/100ms"      // questions to kube-apiserver how new it is
	unitProofLists    = "proof-lists/100ms" // lists at kube-apiserver that compare collections
)

// processes returns the servers and this program.
func (s *scaleBench) processes() []measure.Process {
	all := append([]measure.Process{ownProcess()}, s.cluster.processes...)
	if s.proxy != nil {
		all = append(all, s.proxy.process)
	}
	return all
}

// endpoint returns the address of a peer.
func (s *scaleBench) endpoint(p peer) endpoint {
	if p == direct {
		return s.cluster.endpoint
	}
	return s.proxy.endpoint(p)
}

const (
	// settleTime is the time that servers get to finish what they do after a handshake.
	settleTime = 200 * time.Millisecond
	// quietTime is the time without a request before a lone one.
	quietTime = 2 * time.Second
)

// joins returns the measurement of clients that begin a watch of any state at once. They are
// connected before: the TLS handshake is not measured. n is their number at a peer.
func joins(choice scaleChoice, n func(*scaleOptions, peer) int) scaleMeasure {
	return func(ctx context.Context, s *scaleBench, p peer) ([]metric, error) {
		clients := n(s.opts, p)
		crowd, err := newSyncers(s.endpoint(p), clients, false, func(i int) podSelection {
			want := choice(s.pods, i)
			want.query += "&resourceVersion=0"
			return want
		})
		defer crowd.close()
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, settleTime); err != nil {
			return nil, err
		}
		used, wall, err := crowd.measure(ctx, s.processes())
		count := float64(clients)
		return append([]metric{
			{unitRequestCPU, float64(used.CPU[p.name]) / count},
			{unitAllRequestCPU, float64(serversCPU(&used)) / count},
			{unitWall, float64(wall)}, {unitRequestBytes, float64(crowd.bytes()) / count}, {"clients", count},
		}, usageMetrics(&used)...), err
	}
}

// crowdAt returns the number of clients that join at a peer.
func crowdAt(o *scaleOptions, p peer) int {
	if p == direct {
		return min(o.Direct, o.Clients)
	}
	return o.Clients
}

func one(*scaleOptions, peer) int { return 1 }

// listers connects n clients that will list. Client i will make the choice of client first+i.
func (s *scaleBench) listers(p peer, choice scaleChoice, version string, first, n int) (all []lister, err error) {
	for i := range n {
		want, path := choice(s.pods, first+i), podsPath
		if want.query != "" {
			path += "?" + want.query[1:]
		}
		l, err := newLister(s.endpoint(p), form{"json", "identity", version, http11, false}, path)
		if err != nil {
			return all, err
		}
		all = append(all, countedLister{l, want.objects})
	}
	return all, nil
}

func closeAll(listers []lister) {
	for _, l := range listers {
		l.close()
	}
}

// A countedLister counts the pods in each list, instead of writing it anywhere.
type countedLister struct {
	lister
	pods int // that each list must have
}

func (l countedLister) list(io.Writer) (time.Duration, error) {
	var got podCounter
	took, err := l.lister.list(&got)
	if err == nil && got.count != l.pods {
		err = fmt.Errorf("list has %d pods, want %d", got.count, l.pods)
	}
	return took, err
}

// anyLists returns the measurement of lists of any state, on n connections. Each makes one list at
// least, and begins no other after the window; with a single connection it makes one.
func anyLists(choice scaleChoice, n int) scaleMeasure {
	return func(ctx context.Context, s *scaleBench, p peer) ([]metric, error) {
		all, err := s.listers(p, choice, "0", 0, n)
		defer closeAll(all)
		if err == nil {
			err = sleep(ctx, settleTime)
		}
		if err != nil {
			return nil, err
		}
		window := s.opts.Window
		if n == 1 {
			window = 0
		}
		return s.listFor(ctx, p, all, window)
	}
}

// listFor measures listers for a window.
func (s *scaleBench) listFor(ctx context.Context, p peer, all []lister, window time.Duration) ([]metric, error) {
	meter, err := measure.StartMeter(s.processes())
	if err != nil {
		return nil, err
	}
	got, err := listFor(ctx, all, window)
	used, meterErr := meter.Read()
	if err = errors.Join(err, meterErr); err != nil {
		return nil, err
	}
	n, servers := float64(got.count), serversCPU(&used)
	return append([]metric{
		{unitRequestCPU, float64(used.CPU[p.name]) / n}, {unitAllRequestCPU, float64(servers) / n},
		{unitP50, float64(got.latency.Quantile(0.50))}, {unitP99, float64(got.latency.Quantile(0.99))},
		{unitRequestBytes, float64(got.wire) / n}, {unitLists, n / used.Window.Seconds()},
		{unitListsPerCPU, n / max(servers, measure.Tick).Seconds()}, {"lists", n},
	}, usageMetrics(&used)...), nil
}

// loneList returns the measurement of one consistent list of a collection that nobody has asked for
// lately.
func loneList(choice scaleChoice) scaleMeasure {
	return func(ctx context.Context, s *scaleBench, p peer) ([]metric, error) {
		all, err := s.listers(p, choice, "", s.round, 1) // another node in each round
		defer closeAll(all)
		if err == nil {
			err = sleep(ctx, quietTime)
		}
		if err != nil {
			return nil, err
		}
		return s.listFor(ctx, p, all, 0)
	}
}

// loadedLists is the measurement of consistent lists of a quiet collection by many clients, each
// with one list at a time. It counts what reaches kube-apiserver meanwhile.
func loadedLists(ctx context.Context, s *scaleBench, p peer) ([]metric, error) {
	all, err := s.listers(p, choiceNode, "", 0, s.opts.Load)
	defer closeAll(all)
	if err == nil {
		_, err = listFor(ctx, all, time.Second) // the first questions of a quiet collection have a row of their own
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.audit.count(); err != nil {
		return nil, err
	}
	began := time.Now()
	m, err := s.listFor(ctx, p, all, s.opts.LoadTime)
	if err != nil || p == direct {
		return m, err
	}
	steps := time.Since(began).Seconds() * 10
	requests, err := s.audit.count()
	made, _ := find(m, "lists")
	return append(m, metric{unitProofs, float64(requests["versions"]) / steps},
		metric{unitProofLists, float64(requests["proof lists"]) / steps},
		metric{unitPassed, float64(requests[passedLists]) / made}), err
}
