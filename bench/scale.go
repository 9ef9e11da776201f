package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A scaleBench is `bench scale`: a cluster that grows, with a watchfan in front of it. It compares the cost
// of joins, and the memory, in several sizes.
type scaleBench struct {
	common
	Pods                    list[int] // in the cluster, from few to many
	Clients, Direct, Rounds int
	Patience                time.Duration

	*program
	empty int64 // resident memory of kube-apiserver without pods
	pods  int   // that there are
}

func (s *scaleBench) AddFlags(fs *flag.FlagSet) {
	s.addOut(fs)
	s.addOnly(fs)
	addList(fs, &s.Pods, "pods", []int{10_000, 100_000}, "`numbers` of pods, multiples of "+strconv.Itoa(scaleBlock),
		between(1, math.MaxInt))
	addNumber(fs, &s.Clients, "clients", 500, 1, "clients that join at once")
	addNumber(fs, &s.Direct, "direct-clients", 20, 1, "the same at kube-apiserver, which takes memory and time for each")
	addNumber(fs, &s.Rounds, "rounds", 3, 1, "turns of each row; results are medians of these rounds")
	fs.DurationVar(&s.Patience, "patience", 20*time.Second, "time after which a row begins no other round")
	fs.BoolFunc("quick", "one round with 1,000 and 5,000 pods, less than two minutes", func(string) error {
		s.Pods, s.Clients, s.Rounds = []int{1000, 5000}, 100, 1
		return nil
	})
}

func (s *scaleBench) Validate() error {
	switch {
	case slices.ContainsFunc(s.Pods, func(n int) bool { return n%scaleBlock != 0 }):
		return fmt.Errorf("--pods must be multiples of %d", scaleBlock)
	case len(s.wanted(joinRows)) == 0 && len(s.wanted(startRows)) == 0 && !s.wantsForms():
		return fmt.Errorf("--only %s: no row has such a name", s.Only)
	}
	slices.Sort(s.Pods)
	s.Pods = slices.Compact(s.Pods)
	return s.validate(true, max(s.Clients, s.Direct))
}

func (s *scaleBench) sections() []*report.Section { return []*report.Section{scaleSection()} }

// A measurement returns the figures of a row at the stage's peer.
type measurement func(*scaleBench, context.Context) ([]report.Metric, error)

// A scaleRow is what is measured at kube-apiserver, unless that is nil, and at watchfan.
type scaleRow struct {
	name            string
	direct, proxied measurement
}

var (
	joinAll   = joining(true, func(pods, _ int) load.PodSelection { return load.PodSelection{Objects: pods} })
	joinNode  = joining(false, podsOfNode)
	joinLabel = joining(false, func(pods, i int) load.PodSelection {
		query := load.LabelQuery(scaleLabel + "=" + scaleRelease(i%(pods/scalePerLabel)))
		return load.PodSelection{Query: query, Objects: scalePerLabel}
	})

	// joinRows are of clients that begin a watch of any state at once, at a watchfan that has all pods.
	joinRows = []scaleRow{
		{"join-all", joinAll, joinAll},
		{"join-node", joinNode, joinNode},
		{"join-label", joinLabel, joinLabel},
	}
	// startRows are of watchfans that start.
	startRows = []scaleRow{
		{"fill", joinAll, (*scaleBench).measureFill},
		{"restart", nil, (*scaleBench).measureRestart},
		{"memory-lean", nil, (*scaleBench).measureLean},
	}
)

// podsOfNode returns what a kubelet asks for: the pods of its node.
func podsOfNode(pods, i int) load.PodSelection {
	query := load.FieldQuery("spec.nodeName", scaleNode(i%(pods/scalePerNode)))
	return load.PodSelection{Query: query, Objects: scalePerNode}
}

func (s *scaleBench) wanted(rows []scaleRow) []scaleRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r scaleRow) bool { return !s.Only.MatchString(r.name) })
}

// A scaleForm is a representation whose memory is measured, in a row of its name.
type scaleForm struct{ row, accept string }

var scaleForms = []scaleForm{
	{"memory-json", "application/json"},
	{"memory-protobuf", "application/vnd.kubernetes.protobuf"},
	{"memory-metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
}

// wantsForms reports whether the memory of a representation is measured. Then all are, because each is beside the
// ones before it.
func (s *scaleBench) wantsForms() bool {
	return slices.ContainsFunc(scaleForms, func(f scaleForm) bool { return s.Only.MatchString(f.row) })
}

func scaleSection() *report.Section {
	return &report.Section{
		Bench: "Scale", Title: "Scale: what grows with the pods of a cluster",
		Note: "CPU is for each client, of the answering process, without the TLS handshake.",
		Columns: []report.Column{
			report.Col("CPU ms", "cpu-ns/request", 1e-6), report.Col("CPU ms of all servers", "all-cpu-ns/request", 1e-6), report.Col("time ms", "wall-ns", 1e-6),
			report.Col("RSS MiB", "grown-B", 1.0/(1<<20)), report.Col("× the objects' bytes", "x-objects", 1),
		},
		Costs: 4,
	}
}

func (s *scaleBench) run(ctx context.Context, p *program) error {
	s.program = p
	if err := s.startStage(ctx, s.Devcluster, new(load.Collection), 0, 0); err != nil {
		return err
	}
	atRest, err := s.stage.Rest(ctx)
	if err != nil {
		return err
	}
	s.empty = atRest[report.Direct.Name]
	for _, n := range s.Pods {
		if err := load.CreatePods(ctx, s.stage.Writer, s.pods, n, scalePod, s.say); err != nil {
			return err
		}
		s.pods = n
		if rows := s.wanted(joinRows); len(rows) > 0 {
			err = s.stage.Behind(ctx, s.Watchfan, nil, func() error {
				if err := fillPods(ctx, s.stage.Proxy, scaleForms[0].accept, 1); err != nil {
					return err
				}
				return s.measure(ctx, rows)
			})
		}
		if err == nil && s.wantsForms() {
			err = s.stage.Behind(ctx, s.Watchfan, nil, func() error { return s.memory(ctx) })
		}
		if err == nil {
			err = s.measure(ctx, s.wanted(startRows))
		}
		if err != nil {
			return errors.Join(err, s.stage.Alive())
		}
	}
	return nil
}

const (
	rowTime    = 3 * time.Minute        // for the clients of a row
	settleTime = 200 * time.Millisecond // for the servers to finish what they do after a handshake
)

// measure measures rows, at one peer after the other. A row begins no other round after the patience.
func (s *scaleBench) measure(ctx context.Context, rows []scaleRow) error {
	for _, row := range rows {
		begun := time.Now()
		for s.round = 1; s.round <= s.Rounds && (s.round == 1 || time.Since(begun) < s.Patience); s.round++ {
			for i, at := range []measurement{row.direct, row.proxied} {
				if at == nil {
					continue
				}
				s.stage.Peer = report.Peers[i]
				m, err := at(s, ctx)
				if err := s.noteRow(ctx, row.name, m, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *scaleBench) noteRow(ctx context.Context, row string, m []report.Metric, err error) error {
	axes := report.Axes("row", row, "pods", s.pods)
	return s.note(ctx, s.stage, "Scale", report.Sample{Peer: s.stage.Peer, Axes: axes, Metrics: m, Err: err})
}

// joining measures clients that ask at once, or one alone. Client i in a cluster of so many pods makes a choice of
// its own. They are connected before: the TLS handshake is not measured.
func joining(alone bool, choice func(pods, i int) load.PodSelection) measurement {
	return func(s *scaleBench, ctx context.Context) ([]report.Metric, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, rowTime, fmt.Errorf("not over after %v", rowTime))
		defer cancel()
		clients := s.Clients
		if alone {
			clients = 1
		} else if s.stage.Peer == report.Direct {
			clients = min(s.Direct, clients)
		}
		crowd, err := s.crowd(ctx, s.stage.Endpoint(), clients, choice)
		if err != nil {
			return nil, err
		}
		defer crowd.Close()
		if err := load.Sleep(ctx, settleTime); err != nil {
			return nil, err
		}
		return joined(ctx, s.stage, crowd, clients, "request")
	}
}

// crowd connects clients that will ask for pods in any state.
func (s *scaleBench) crowd(ctx context.Context, e load.Endpoint, clients int,
	choice func(pods, i int) load.PodSelection) (*load.Syncers, error) {
	return load.NewSyncers(ctx, e, clients, false, func(i int) load.PodSelection {
		want := choice(s.pods, i)
		want.Query += anyState
		return want
	})
}

const anyState = "&resourceVersion=0"

// memory measures the resident memory that each representation adds to a new watchfan, and that of
// kube-apiserver with all pods. The servers are at rest.
func (s *scaleBench) memory(ctx context.Context) error {
	s.say("memory of the representations")
	s.round = 1
	before, err := s.stage.Rest(ctx)
	if err != nil {
		return err
	}
	objects := 0.0 // bytes
	for i, f := range scaleForms {
		if err := fillPods(ctx, s.stage.Proxy, f.accept, i+1); err != nil {
			return err
		}
		after, err := s.stage.Rest(ctx)
		if err != nil {
			return err
		}
		bytes, err := s.cacheBytes(ctx)
		if err != nil {
			return err
		}
		if s.stage.Peer = report.Direct; i == 0 {
			err = s.noteRow(ctx, f.row, memoryMetrics(float64(after[report.Direct.Name]-s.empty), bytes), nil)
		}
		if s.stage.Peer = report.WatchfanTLS; err == nil {
			name := s.stage.Peer.Name
			err = s.noteRow(ctx, f.row, memoryMetrics(float64(after[name]-before[name]), bytes-objects), nil)
		}
		if err != nil {
			return err
		}
		before, objects = after, bytes
	}
	return nil
}

const podLanes = `resource="pods"`

// fillPods lets a watchfan cache pods in one more representation, the n-th, and returns when it has
// them.
func fillPods(ctx context.Context, p *server.Proxy, accept string, n int) error {
	const nothing, patience = load.PodsPath + "?resourceVersion=0&fieldSelector=metadata.name%3Dnobody", 3 * time.Minute
	for deadline := time.Now().Add(patience); ; {
		_, err := p.TLS.GetAs(ctx, nothing, accept)
		if err != nil {
			return err
		}
		lanes, err := server.Sum(ctx, p.Admin, "watchfan_lane_synced", podLanes)
		if err != nil || lanes >= float64(n) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s not filled after %v", accept, patience)
		}
		if err := load.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// A large cluster: each node runs 20 pods of different applications, and each release of a service
// has 20 pods on different nodes. With more pods there are more nodes and more releases.
const (
	scalePerNode  = 20
	scaleBlock    = 1000      // pods that fill their nodes
	scaleLabel    = "release" // the label that 20 pods share
	scalePerLabel = 20
)

func scalePod(i int) load.Pod {
	const nodes = scaleBlock / scalePerNode // of a block
	return load.NewPod(i).On(scaleNode(i/scaleBlock*nodes+i%nodes)).Labelled(scaleLabel, scaleRelease(i/scalePerLabel))
}

func scaleNode(i int) string { return fmt.Sprintf("node-%05d", i) }

func scaleRelease(i int) string { return fmt.Sprintf("r-%05d", i) }
