//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/watchfan/watchfan/bench/measure"
)

// Units of the leanmemory part.
const (
	unitHeap       = "heap-B"         // of a lane and what its clients have left
	unitHeapObject = "heap-B/objects" // the same, as a multiple of the objects' bytes
)

func leanMemorySection(o *Options) *section {
	alone, both, lean := formsAxes("whole"), formsAxes("whole+lean"), formsAxes("lean")
	return &section{
		bench: "LeanMemory",
		title: fmt.Sprintf("Memory of a lane of %d pods in JSON, after a client has read all of them in each form", o.Pods),
		note: "MiB = growth of Go's heap, after garbage collections, in addition to a watchfan without lanes. " +
			"Each first form has a watchfan of its own.",
		columns: []column{
			{"MiB", unitHeap, 1.0 / (1 << 20)}, {"× the objects' bytes", unitHeapObject, 1},
			{"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		goals: []goal{
			{"memory, both forms / whole alone", unitHeap, both, alone, 1.2},
			{"memory, lean alone / whole alone", unitHeap, lean, alone, 0.7},
		},
	}
}

// formsAxes returns the axes of a case.
func formsAxes(forms string) []axis { return []axis{{"forms", forms}} }

// leanMemory measures a lane of whole pods, then the same with lean ones, and a lane of lean pods
// alone. Each lane has a new watchfan.
func (p *program) leanMemory(ctx context.Context, st *stage) error {
	for _, steps := range [][]leanMemoryStep{{{"whole", false}, {"whole+lean", true}}, {{"lean", true}}} {
		err := p.behind(ctx, st, nil, func(ctx context.Context, st *stage) error { return p.fillForms(ctx, st, steps) })
		if err != nil {
			return err
		}
	}
	return nil
}

// A leanMemoryStep is one client, and the forms that clients have read then.
type leanMemoryStep struct {
	forms string
	lean  bool
}

// fillForms measures one watchfan over TLS. kube-apiserver has no lanes.
func (p *program) fillForms(ctx context.Context, st *stage, steps []leanMemoryStep) error {
	if st.peer != watchfanTLS {
		return nil
	}
	before, err := liveHeap(ctx, st)
	if err != nil {
		return err
	}
	if err := fillPods(ctx, st.proxy, form{format: "json"}.mediaType(), 1); err != nil {
		return err
	}
	for _, step := range steps {
		x := sample{peer: st.peer, axes: formsAxes(step.forms)}
		x.metrics, x.err = readForm(ctx, st, step.lean, before)
		if err := p.note(ctx, st, partLeanMemory, x, 2); err != nil {
			return err
		}
	}
	return nil
}

// readForm lets a client read all pods, and returns the memory since a watchfan without lanes.
func readForm(ctx context.Context, st *stage, lean bool, before float64) ([]metric, error) {
	l, err := leanListCase{form{"json", "identity", "", http11, lean}, true}.connect(st.endpoint(), st.coll.objects)
	if err != nil {
		return nil, err
	}
	_, err = l.list(io.Discard)
	l.close()
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, settleTime); err != nil {
		return nil, err
	}
	after, err := liveHeap(ctx, st)
	if err != nil {
		return nil, err
	}
	objects, err := podSeries(ctx, st.proxy, "watchfan_cache_bytes")
	if err != nil {
		return nil, err
	}
	costs, err := measure.ReadCosts([]measure.Process{st.proxy.process})
	return []metric{{unitHeap, after - before}, {unitHeapObject, (after - before) / objects}, {"objects-B", objects},
		{"RSS-B", float64(costs.RSS[st.proxy.process.Name])}}, err
}

// liveHeap returns the bytes of watchfan's heap after garbage collections.
func liveHeap(ctx context.Context, st *stage) (float64, error) {
	if err := st.collectGarbage(ctx); err != nil {
		return 0, err
	}
	page, err := st.proxy.admin.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	heap, err := sumSeries(string(page), "go_memstats_heap_alloc_bytes")
	if err == nil && heap == 0 {
		err = errors.New("watchfan does not count its heap")
	}
	return heap, err
}
