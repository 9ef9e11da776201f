package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// trial is a record that is to be judged.
type trial struct {
	seed    uint64
	history *history
	worlds  map[selection]*world
	clients map[*world][]*client // in their order in the record
	open    map[string]*client   // that have a stream, by name
}

// newTrial reads a record.
func newTrial(lines []line) (*trial, error) {
	h, err := newHistory(lines)
	if err != nil {
		return nil, err
	}
	t := &trial{history: h, worlds: make(map[selection]*world), clients: make(map[*world][]*client),
		open: make(map[string]*client)}
	for i, l := range lines {
		switch l.Kind {
		case "run":
			t.seed = l.Seed
		case "change", "write", "done":
		case "read", "watch", "event", "end":
			if err := t.take(l); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		default:
			return nil, fmt.Errorf("line %d: unknown kind %q", i+1, l.Kind)
		}
	}
	return t, nil
}

// take gives a line to its client. Only reads and watches say of which world they are.
func (t *trial) take(l line) error {
	if l.Scope == nil {
		c := t.open[l.Client]
		if c == nil || c.stream == nil {
			return fmt.Errorf("%s has no stream", l.Client)
		}
		c.take(l)
		return nil
	}
	w := t.worlds[l.Scope.selection()]
	if w == nil {
		var err error
		if w, err = newWorld(t.history, l.Scope.selection()); err != nil {
			return err
		}
		t.worlds[w.selection] = w
	}
	i := slices.IndexFunc(t.clients[w], func(c *client) bool { return c.name == l.Client })
	if i < 0 {
		i = len(t.clients[w])
		t.clients[w] = append(t.clients[w], &client{world: w, name: l.Client})
	}
	c := t.clients[w][i]
	c.take(l)
	if l.Kind == "watch" {
		t.open[l.Client] = c
	}
	return nil
}

// order returns the worlds in the order of their names.
func (t *trial) order() []*world {
	return slices.SortedFunc(maps.Values(t.worlds), func(a, b *world) int { return cmp.Compare(a.String(), b.String()) })
}

// empty is etcd before its first write, without which the validators don't begin.
func empty() porcupine.Operation {
	r := read{scope: scope{Resource: "none"}}
	return operation(0, 1, 2, r.request(0), r.answer(nil, 1))
}

func operation(client int, begin, end int64, in model.EtcdRequest, out model.MaybeEtcdResponse) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Call: begin, Return: end, Input: in, Output: out, Metadata: out}
}

// told is what clients were told, without regard to when: first comes the whole history, and then
// each read, as of its revision.
func (t *trial) told(w *world, clients []*client) []report.ClientReport {
	etcd := report.ClientReport{KeyValue: []porcupine.Operation{empty()}}
	now := int64(10)
	for i, r := range w.requests {
		etcd.KeyValue = append(etcd.KeyValue, operation(0, now, now+1, r, written(r, int64(i)+2)))
		now += 2
	}
	reports := []report.ClientReport{etcd}
	for i, c := range clients {
		one, now := report.ClientReport{ClientID: i + 1, Watch: c.watches}, now
		for _, r := range c.reads {
			one.KeyValue = append(one.KeyValue, operation(i+1, now, now+1, r.request(r.revision(t.history, w)),
				r.answer(w, int64(len(w.requests))+1)))
			now += 2
		}
		reports = append(reports, one)
	}
	return reports
}

// timedRead is a read that may not be stale.
type timedRead struct {
	client int // number
	name   string
	rv     int64
	read
}

func (r timedRead) String() string {
	return fmt.Sprintf("%s by %s of %s, asked at %.6fs and answered at %.6fs", r.what, r.name,
		strings.TrimSuffix(r.scope.prefix(), "/"), float64(r.at)/1e9, float64(r.until)/1e9)
}

// consistent returns the reads of a world that may not be stale.
func (t *trial) consistent(w *world) (reads []timedRead) {
	for i, c := range t.clients[w] {
		for _, r := range c.reads {
			if r.consistent {
				reads = append(reads, timedRead{i + 1, c.name, r.revision(t.history, w), r})
			}
		}
	}
	return reads
}

// timed is what happened when: the writes, within their bounds, and reads. A revision that a read
// saw was committed before the answer, and the next one was not committed before the question. If
// the reads agree with each other and with the writes, then these bounds put them into an order
// that is found at once; otherwise the reads say nothing about the bounds.
func (t *trial) timed(w *world, reads []timedRead) []report.ClientReport {
	known := make([]bounds, len(t.history.revisions))
	for i, r := range t.history.revisions {
		known[i] = r.bounds
	}
	agreed := slices.Clone(known)
	for _, r := range reads {
		if i := r.rv - 2; i >= 0 && i < int64(len(agreed)) {
			agreed[i].until = min(agreed[i].until, r.until)
		}
		if i := r.rv - 1; i >= 0 && i < int64(len(agreed)) {
			agreed[i].since = max(agreed[i].since, r.at+1)
		}
	}
	if tighten(agreed) == 0 {
		known = agreed
	}
	etcd := report.ClientReport{KeyValue: []porcupine.Operation{empty()}}
	lanes := []int64{} // when the last write of each ends: those of one may not overlap
	for i, b := range known {
		lane := slices.IndexFunc(lanes, func(end int64) bool { return end < b.since })
		if lane < 0 {
			lane, lanes = len(lanes), append(lanes, 0)
		}
		lanes[lane] = b.until
		etcd.KeyValue = append(etcd.KeyValue,
			operation(1000+lane, b.since, b.until, w.requests[i], written(w.requests[i], int64(i)+2)))
	}
	reports := []report.ClientReport{etcd}
	for _, r := range reads {
		if len(reports) == 1 || reports[len(reports)-1].ClientID != r.client {
			reports = append(reports, report.ClientReport{ClientID: r.client})
		}
		one := &reports[len(reports)-1]
		one.KeyValue = append(one.KeyValue, operation(r.client, r.at, r.until, r.request(0), r.answer(w, r.rv)))
	}
	return reports
}

// impossible returns the reads that the times of the writes alone refute, and why.
func (t *trial) impossible(reads []timedRead) (refuted []timedRead, why []string) {
	for _, r := range reads {
		known := t.history.known(r.at)
		seen := t.history.at(r.rv)
		switch {
		case r.rv < known:
			refuted = append(refuted, r)
			why = append(why, fmt.Sprintf("%s, is as of %d: revision %d had been committed before it was asked", r, r.rv, known))
		case seen != nil && seen.since >= r.until:
			refuted = append(refuted, r)
			why = append(why, fmt.Sprintf("%s, is as of %d, which had not been committed when it was answered", r, r.rv))
		}
	}
	return refuted, why
}
