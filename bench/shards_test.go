//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// TestPodHalves: two filters divide the pods, and ask for the halves of all hashes.
func TestPodHalves(t *testing.T) {
	const objects = 100
	uid := func(i int) string { return hex(rand.NewChaCha8(seed(i)), 16) }
	served := objects
	e := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		if want := "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"; r.Header.Get("Accept") != want {
			t.Errorf("asked for %s", r.Header.Get("Accept"))
		}
		var items []string
		for i := range served {
			p := newPod(i)
			items = append(items, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":%q}}`, p.namespace, p.name, uid(i)))
		}
		fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
	})
	st := &stage{cluster: &cluster{endpoint: e}, coll: &collection{objects: objects}}
	halves, err := podHalves(t.Context(), st)
	if err != nil || len(halves) != 2 {
		t.Fatalf("%d filters, %v", len(halves), err)
	}
	lower := 0
	for o := range objects {
		below := framing.HashOf(uid(o)) < 0x8000000000000000
		if below {
			lower++
		}
		if halves[0].match(o) != below || halves[1].match(o) == below {
			t.Errorf("pod %d is in the lower half: %t, in the upper: %t", o, halves[0].match(o), halves[1].match(o))
		}
	}
	if lower < objects/4 || lower > objects*3/4 {
		t.Errorf("%d of %d pods are in the lower half", lower, objects)
	}
	for i, want := range []string{
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
	} {
		query, err := url.ParseQuery(halves[i].query)
		if got := query.Get("shardSelector"); err != nil || got != want {
			t.Errorf("got %s, %v want %s", got, err, want)
		}
	}
	served--
	if _, err := podHalves(t.Context(), st); err == nil || !strings.Contains(err.Error(), "pod 99 has no uid") {
		t.Errorf("got %v", err)
	}
}

func TestShardsReport(t *testing.T) {
	s := shardsSection(defaults())
	for _, x := range []struct{ clients, shards, deliveries int }{{2000, 1, 60_000}, {1000, 2, 30_000}} {
		r := leanResult(watchfanTLS, 2000, x.deliveries, 10_000)
		reached := float64(x.deliveries) / float64(r.writes)
		s.add(sample{peer: watchfanTLS, axes: shardAxes(x.clients, x.shards),
			metrics: append(r.metrics(), metric{unitReached, reached}, metric{unitEvent, reached * 10_000})})
	}
	wantInTables(t, s, "watchfan/tls 1 2000 2,000 20.0 10.0",
		"watchfan/tls 2 1000 1,000 10.0 10.0",
		"deliveries of an event to two shards of 1000 1,000 ≤ 1,000 met",
		"CPU per event, two shards of 1000 / 2000 that want all 0.50 –")
}
