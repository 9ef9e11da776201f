package e2e_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// model is a collection's history as one unfiltered watch of kube-apiserver brought it. It says
// what any other watch has to bring. Twins show that it follows kube-apiserver's rules: it has to
// explain kube-apiserver's own streams too.
type model struct {
	at    uint64            // resourceVersion of state
	state map[string]object // as of at
	log   []change          // behind at
	views map[string][]told // by filter
}

// object is one version of an object.
type object struct {
	json      string // as watch events carry it
	rv        uint64
	uid       string
	namespace string
	name      string
	labels    labels.Set
}

// change is one event of the reference.
type change struct {
	event
	old, new *object // new is nil for a deletion
}

// newModel reads the events of a reference watch with initial events and their end bookmark.
func newModel(events []event) (*model, error) {
	m := &model{state: make(map[string]object), views: make(map[string][]told)}
	now := make(map[string]object)
	for _, e := range events {
		if e.typ == "BOOKMARK" {
			if e.end {
				m.at = e.rv
			}
			continue
		}
		o := readObject(e)
		if m.at == 0 {
			m.state[e.key], now[e.key] = o, o
			continue
		}
		c := change{event: e}
		if old, ok := now[e.key]; ok {
			c.old = &old
		}
		switch e.typ {
		case "ADDED", "MODIFIED":
			c.new = &o
			now[e.key] = o
		case "DELETED":
			delete(now, e.key)
		default:
			return nil, fmt.Errorf("reference holds %s", e.line)
		}
		m.log = append(m.log, c)
	}
	if m.at == 0 {
		return nil, errors.New("reference has no end bookmark")
	}
	return m, nil
}

func readObject(e event) object {
	_, body, _ := strings.Cut(strings.TrimSuffix(e.line, "}\n"), `"object":`)
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		panic(err) // parseEvent has read it before
	}
	return object{body, e.rv, e.uid, o.Namespace, o.Name, o.Labels}
}

// filter is what a watch selects.
type filter struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	half      int  // of all objects, by the hashes of their uids: 1 or 2; 0 for both
	lean      bool // without managedFields
}

// has reports whether f's half has an object.
func (f filter) has(uid string) bool { return f.half == 0 || inHalf(f.half-1, uid) }

// shown returns a line as f's client is sent it.
func (f filter) shown(line string) string {
	if !f.lean {
		return line
	}
	lean, err := leanJSON([]byte(line))
	if err != nil {
		panic(err) // it is a line of a watch, which was parsed before
	}
	return string(lean)
}

// cut returns kube-apiserver's events as f's client is sent them, where kube-apiserver ignores
// shardSelector and drop.
func (f filter) cut(events []event) []event {
	var kept []event
	for _, e := range events {
		if e.uid == "" || f.has(e.uid) {
			e.line = f.shown(e.line)
			kept = append(kept, e)
		}
	}
	return kept
}

func (f filter) match(o *object) bool {
	return o != nil && f.has(o.uid) && (f.namespace == "" || f.namespace == o.namespace) && f.labels.Matches(o.labels) &&
		f.fields.Matches(fields.Set{"metadata.name": o.name, "metadata.namespace": o.namespace})
}

func (f filter) line(c change) string {
	old, cur := f.match(c.old), f.match(c.new)
	switch {
	case cur && old:
		return line("MODIFIED", c.new.json)
	case cur:
		return line("ADDED", c.new.json)
	case old && c.typ == "DELETED":
		return c.event.line
	case old:
		return line("DELETED", strings.Replace(c.old.json, fmt.Sprintf(`"resourceVersion":"%d"`, c.old.rv),
			fmt.Sprintf(`"resourceVersion":"%d"`, c.rv), 1))
	}
	return ""
}

func line(typ, object string) string { return `{"type":"` + typ + `","object":` + object + "}\n" }

// told is one event of a watch.
type told struct {
	rv   uint64
	line string
}

// told returns the events that a watch with filter f brings if it begins before the log.
func (m *model) told(f filter) []told {
	key := fmt.Sprintf("%s|%s|%s|%d|%t", f.namespace, f.labels, f.fields, f.half, f.lean)
	if all, ok := m.views[key]; ok {
		return all
	}
	var all []told
	for _, c := range m.log {
		if l := f.line(c); l != "" {
			all = append(all, told{c.rv, f.shown(l)})
		}
	}
	m.views[key] = all
	return all
}

// last returns the resourceVersion of the last event that a watch with filter f brings.
func (m *model) last(f filter) uint64 {
	if all := m.told(f); len(all) > 0 {
		return all[len(all)-1].rv
	}
	return 0
}

// behind returns the events that a watch with filter f brings behind resourceVersion rv.
func (m *model) behind(f filter, rv uint64) []string {
	all := m.told(f)
	from, _ := slices.BinarySearchFunc(all, rv+1, func(t told, rv uint64) int { return cmp.Compare(t.rv, rv) })
	lines := make([]string, 0, len(all)-from)
	for _, t := range all[from:] {
		lines = append(lines, t.line)
	}
	return lines
}

// stateAt returns the matching objects as of rv, as initial events.
func (m *model) stateAt(f filter, rv uint64) []string {
	now := make(map[string]*object)
	for k, o := range m.state {
		now[k] = &o
	}
	for _, c := range m.log {
		if c.rv > rv {
			break
		}
		now[c.key] = c.new
	}
	var keys []string
	for k, o := range now {
		if f.match(o) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	lines := make([]string, len(keys))
	for i, k := range keys {
		lines[i] = f.shown(line("ADDED", now[k].json))
	}
	return lines
}

// explain returns an error unless the events are those of a watch that begins at some
// resourceVersion, least or later: the state at that resourceVersion, if initial is true, and
// everything behind it. An end bookmark names the resourceVersion. explain also returns how many
// events are initial ones.
func (m *model) explain(f filter, events []event, initial bool, least uint64) (int, error) {
	var got []string
	for _, e := range events {
		if e.end {
			if e.rv < least {
				return 0, fmt.Errorf("end bookmark %d is older than %d", e.rv, least)
			}
			if err := same(got, m.stateAt(f, e.rv)); err != nil {
				return 0, fmt.Errorf("initial events as of %d: %w", e.rv, err)
			}
			rest := slices.DeleteFunc(slices.Clone(events), func(e event) bool {
				return e.typ == "BOOKMARK"
			})[len(got):]
			if err := same(lines(rest), m.behind(f, e.rv)); err != nil {
				return 0, fmt.Errorf("events behind %d: %w", e.rv, err)
			}
			return len(got), nil
		}
		if e.typ != "BOOKMARK" {
			got = append(got, e.line)
		}
	}
	n, err := m.explainAt(f, got, initial, least)
	if err == nil {
		return n, nil
	}
	for _, c := range m.log {
		if c.rv > least {
			if n, err := m.explainAt(f, got, initial, c.rv); err == nil {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("no beginning at or behind %d explains it; at %d: %w", least, least, err)
}

func (m *model) explainAt(f filter, got []string, initial bool, rv uint64) (int, error) {
	live := m.behind(f, rv)
	if !initial {
		return 0, same(got, live)
	}
	n := len(got) - len(live)
	if n < 0 { // this is cheaper than to compare the state
		return 0, fmt.Errorf("got %d events, want %d and the initial ones", len(got), len(live))
	}
	if err := same(got[n:], live); err != nil {
		return 0, err
	}
	return n, same(got[:n], m.stateAt(f, rv))
}

func lines(events []event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.line
	}
	return out
}

func same(got, want []string) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("event %d of %d is missing: %s", i, len(want), want[i])
		case i >= len(want):
			return fmt.Errorf("event %d is too many, want %d: %s", i, len(want), got[i])
		case got[i] != want[i]:
			return fmt.Errorf("event %d is\n%swant\n%s", i, got[i], want[i])
		}
	}
	return nil
}
