package main

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// history is etcd's history from its second revision on. The first is the empty database.
type history struct{ revisions []revision }

// revision is one revision of etcd.
type revision struct {
	rv      int64
	changes []change // of objects that clients follow; hardly ever more than one
	bounds
}

// bounds say when a revision was committed: not before since, and not after until.
type bounds struct{ since, until int64 }

// change is a new version of an object, or its absence.
type change struct {
	key         string // in etcd: /resource/namespace/name
	full, meta  string // digests; "" if the object is absent
	lean, scant string // the same without managedFields
	quiet       string // in the quiet view
	labels      map[string]string
	half        int // of all objects, by the hash of the uid; 1 or 2
}

// value returns the digest that a selection shows.
func (c change) value(s selection) string {
	switch {
	case s.quiet:
		return c.quiet
	case s.metadata && s.lean:
		return c.scant
	case s.metadata:
		return c.meta
	case s.lean:
		return c.lean
	}
	return c.full
}

// name returns the object's namespace and name.
func (c change) name() (namespace, name string) {
	parts := strings.Split(c.key, "/")
	return parts[len(parts)-2], parts[len(parts)-1]
}

// newHistory collects the revisions and what is known of their times. A write is called before it
// is committed, and acknowledged behind that. The suite's watch of etcd brings a revision some time
// later. Revisions are committed in their order.
func newHistory(lines []line) (*history, error) {
	h := new(history)
	for _, l := range lines {
		if l.Kind != "change" {
			continue
		}
		if err := h.add(l); err != nil {
			return nil, err
		}
	}
	for _, l := range lines {
		if l.Kind != "write" {
			continue
		}
		r := h.at(l.RV)
		if r == nil {
			return nil, fmt.Errorf("%s was told that it wrote revision %d, which etcd does not have", l.Client, l.RV)
		}
		r.since, r.until = max(r.since, l.At), min(r.until, l.Until)
	}
	all := make([]bounds, len(h.revisions))
	for i, r := range h.revisions {
		all[i] = r.bounds
	}
	if rv := tighten(all); rv != 0 {
		return nil, fmt.Errorf("the times of the writes around revision %d contradict each other", rv)
	}
	for i := range h.revisions {
		h.revisions[i].bounds = all[i]
	}
	return h, nil
}

func (h *history) add(l line) error {
	switch last := h.last(); {
	case l.RV == last+1:
		h.revisions = append(h.revisions, revision{rv: l.RV, bounds: bounds{since: 3, until: math.MaxInt64}})
	case l.RV != last || last == 1:
		return fmt.Errorf("revision %d of etcd follows %d", l.RV, last)
	}
	r := &h.revisions[len(h.revisions)-1]
	r.until = min(r.until, l.At)
	if l.Key != "" {
		r.changes = append(r.changes, change{"/" + l.Key, l.Value, l.Meta, l.Lean, l.Scant, l.Quiet, l.Labels, l.Half})
	}
	return nil
}

// last is the newest revision.
func (h *history) last() int64 { return int64(len(h.revisions)) + 1 }

// at returns a revision, nil if there is none.
func (h *history) at(rv int64) *revision {
	if rv < 2 || rv > h.last() {
		return nil
	}
	return &h.revisions[rv-2]
}

// known returns the newest revision that was certainly committed before a moment.
func (h *history) known(at int64) int64 {
	return int64(sort.Search(len(h.revisions), func(i int) bool { return h.revisions[i].until >= at })) + 1
}

// tighten makes bounds follow from each other: no revision is committed before an earlier one, or
// behind a later one. It returns the first revision that has no time left, or 0.
func tighten(all []bounds) (rv int64) {
	for i := 1; i < len(all); i++ {
		all[i].since = max(all[i].since, all[i-1].since+1)
	}
	for i := len(all) - 2; i >= 0; i-- {
		all[i].until = min(all[i].until, all[i+1].until)
	}
	for i, b := range all {
		if b.since >= b.until {
			return int64(i) + 2
		}
	}
	return 0
}
