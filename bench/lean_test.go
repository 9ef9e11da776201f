//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestLeanFleet: every second watcher asks for lean objects, and does not take whole ones.
func TestLeanFleet(t *testing.T) {
	for _, by := range []access{plain, secure, h2} {
		t.Run(string(by), func(t *testing.T) {
			s, e := newScriptedServer(t, by != plain)
			asked := make(map[string]int)
			var mu sync.Mutex // guards asked
			serve := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("watch") {
					mu.Lock()
					asked[r.Header.Get("Accept")]++
					mu.Unlock()
				}
				serve.ServeHTTP(w, r)
			})
			f, err := newFleet(e, s.coll, []filter{everything}, newAcks(), readers{number: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.close)
			f.lean = leanCase{http11, 3, 3}.isLean
			if by == h2 {
				f.h2 = &multiplex{streams: 2, flow: smallWindows}
			}
			if err := f.grow(t.Context(), 6, []uint64{0, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			if asked["application/json"] != 3 || asked["application/json;drop=metadata.managedFields"] != 3 {
				t.Errorf("asked for %v", asked)
			}
			f.expect(1)
			s.say(-1, `{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench-seq":"5"}}}}`+"\n")
			if err := f.drain(t.Context(), steady.Patience); err != nil {
				t.Fatal(err)
			}
			f.expect(1)
			s.say(-1, `{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench-seq":"9"},"managedFields":[]}}}`+"\n")
			err = f.drain(t.Context(), steady.Patience)
			if err == nil || !strings.Contains(err.Error(), errNotLean.Error()) {
				t.Error(err)
			}
			steady.Until(t, "loss of the lean watchers", func() error {
				if n := f.lost.Load(); n != 3 {
					return fmt.Errorf("%d are lost, want 3", n)
				}
				return nil
			})
		})
	}
}

func TestLeanCases(t *testing.T) {
	o := defaults()
	for _, p := range []peer{direct, watchfanTLS} {
		for _, c := range o.leanCases(p) {
			lean := 0
			for i := range c.whole + c.lean {
				if c.isLean(i) {
					lean++
				}
			}
			if c.whole+c.lean != 2*o.LeanClients || lean != c.lean || p == direct && lean > 0 {
				t.Errorf("%v: %+v has %d lean watchers", p, c, lean)
			}
		}
	}
}

// leanResult returns a result of n deliveries with the CPU time of each.
func leanResult(p peer, clients, n int, each time.Duration) result {
	var h measure.Histogram
	h.Record(10 * time.Millisecond)
	r := result{peer: p, clients: clients, writes: 30, Usage: measure.Usage{Window: 3 * time.Second,
		CPU: map[string]time.Duration{p.name: time.Duration(n) * each}, RSS: map[string]int64{p.name: 1 << 30}}}
	r.got.deliveries, r.got.bytes = uint64(n), uint64(n)*2000
	r.got.latency.Add(&h)
	return r
}

// wantInTables reports rows of a section's tables that are missing. A row is given by its begin, with
// one space between cells.
func wantInTables(t *testing.T, s *section, wants ...string) {
	t.Helper()
	var tables bytes.Buffer
	s.writeTables(&tables)
	rows := "\n"
	for line := range strings.Lines(tables.String()) {
		rows += strings.Join(strings.Fields(line), " ") + "\n"
	}
	for _, want := range wants {
		if !strings.Contains(rows, "\n"+want) {
			t.Errorf("no %q in\n%s", want, &tables)
		}
	}
}

func TestLeanReport(t *testing.T) {
	o := defaults()
	s := leanSection(o)
	for _, p := range []peer{direct, watchfanTLS} {
		for _, c := range o.leanCases(p) {
			r := leanResult(p, 2000, 60_000, time.Duration(10+c.lean/1000)*time.Microsecond)
			s.add(sample{peer: p, axes: c.axes(), metrics: r.metrics()})
		}
	}
	wantInTables(t, s,
		"kube-apiserver/tls h2 2000 0 20,000 10.0 10.0 2,000 10.0",
		"watchfan/tls h1 1000 1000 20,000 11.0",
		"h1: CPU per delivery, half of the watchers lean / none 1.10 ≤ 1.10 met",
		"h2: CPU per delivery, all lean / none 1.20 –",
	)
}

func TestLeanMemoryReport(t *testing.T) {
	s := leanMemorySection(defaults())
	for forms, size := range map[string]float64{"whole": 100, "whole+lean": 125, "lean": 70} {
		s.add(sample{peer: watchfanTLS, axes: formsAxes(forms),
			metrics: []metric{{unitHeap, size * (1 << 20)}, {unitHeapObject, 2}}})
	}
	wantInTables(t, s, "watchfan/tls whole+lean 125", "Memory of a lane of 5000 pods",
		"memory, both forms / whole alone 1.25 ≤ 1.20 MISSED", "memory, lean alone / whole alone 0.70 ≤ 0.70 met")
}
