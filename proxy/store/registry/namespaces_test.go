package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/store/lane"
)

// Each read that wants the current namespaces has them scanned. While they are the same that costs as much for
// thousands as for one.
func TestNamespacesScannedOnce(t *testing.T) {
	const many = 2000
	cache := fanout.NewCache(fanout.Limits{HistoryEvents: 10, HistoryBytes: 1 << 20},
		fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet())))
	event := func(rv int) framing.Event {
		ev, err := framing.NewScanner(framing.JSON, nil).Event(fmt.Appendf(nil, `{"type":"ADDED","object":{"kind":"Namespace",`+
			`"apiVersion":"v1","metadata":{"name":"n%d","resourceVersion":"%d","labels":{"team":"a"}}}}`+"\n", rv, rv))
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	var objects []*framing.Object
	for rv := range many {
		objects = append(objects, event(rv+1).Object)
	}
	if _, err := cache.Replace(objects, many, time.Now()); err != nil {
		t.Fatal(err)
	}
	told := 0
	n := &Namespaces{told: func(all map[string]labels.Set) { told = len(all) }}
	n.lanes, n.lane = new(lane.Lanes), &lane.Lane{Cache: cache}
	n.scanLocked(cache.Snapshot())
	if allocs := testing.AllocsPerRun(100, func() { n.scanLocked(cache.Snapshot()) }); allocs > 1 || told != many {
		t.Errorf("%v allocations, and %d namespaces, want one at most, and %d", allocs, told, many)
	}
	if err := cache.Apply(event(many+1), time.Now()); err != nil {
		t.Fatal(err)
	}
	if n.scanLocked(cache.Snapshot()); told != many+1 {
		t.Errorf("%d namespaces, want the new one too", told)
	}
}
