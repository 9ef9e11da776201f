//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A selection is the watch of a client.
type selection struct {
	path  string
	query string
	kind  byte // a: all, g: a group, n: a name, f: the flipped label
	which int  // number of the group or of the object
}

// A change is one write.
type change struct {
	rv       uint64
	object   int
	was, now bool // whether the object had the flipped label before, and has it after
}

// changes writes ConfigMaps at kube-apiserver itself, and records the writes.
type changes struct {
	writer  *writer
	objects int
	flipped []bool // for each object, whether it has the flipped label

	mu  sync.Mutex
	log []change
}

func newChanges(c *cluster, objects int) *changes {
	w := &writer{client: c.client(), server: c.url(), token: c.token}
	return &changes{writer: w, objects: objects, flipped: make([]bool, objects)}
}

const rollingPath = "/api/v1/namespaces/rolling/configmaps"

// selection returns the watch of client i. A tenth of the clients watch everything, two tenths the
// objects with the flipped label, four tenths a group, three tenths one object.
func (w *changes) selection(i int) selection {
	s := selection{path: rollingPath}
	switch k := i % 10; {
	case k == 0:
		s.kind = 'a'
	case k < 3:
		s.kind, s.query = 'f', "labelSelector=flipped%3Dyes"
	case k < 7:
		s.kind, s.which = 'g', i/10%groups
		s.query = fmt.Sprintf("labelSelector=group%%3Dg%d", s.which)
	default:
		s.kind, s.which = 'n', i/10%w.objects
		s.query = "fieldSelector=metadata.name%3D" + objectName(s.which)
	}
	return s
}

// selectedBy returns the changes that a selection's watch must bring.
func (w *changes) selectedBy(s selection) (selected []change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.log {
		all, flipped := s.kind == 'a', s.kind == 'f' && (c.was || c.now)
		group, name := s.kind == 'g' && c.object%groups == s.which, s.kind == 'n' && c.object == s.which
		if all || flipped || group || name {
			selected = append(selected, c)
		}
	}
	return selected
}

func (w *changes) create(ctx context.Context) error {
	if err := w.writer.createNamespace(ctx, "rolling"); err != nil {
		return err
	}
	for o := range w.objects {
		if _, err := w.writer.send(ctx, "POST", rollingPath, w.body(o)); err != nil {
			return err
		}
	}
	return nil
}

func (w *changes) body(o int) string {
	label := ""
	if w.flipped[o] {
		label = `,"flipped":"yes"`
	}
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1",`+
		`"metadata":{"name":%q,"labels":{"group":"g%d"%s}},"data":{"sent":"%d"}}`,
		objectName(o), o%groups, label, time.Now().UnixNano())
}

// run writes the objects in turn until ctx ends. Every second write of an object adds or removes
// the flipped label.
func (w *changes) run(ctx context.Context, rate float64) error {
	timetable := measure.Pace{Start: time.Now(), Rate: rate}
	for i := uint64(0); ; i++ {
		if _, err := timetable.Wait(ctx, i); err != nil {
			return nil
		}
		o := int(i % uint64(w.objects))
		was := w.flipped[o]
		if i/uint64(w.objects)%2 == 0 {
			w.flipped[o] = !was
		}
		// The end of the load does not cancel a write: its result must be known.
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		answer, err := w.writer.send(bounded, "PUT", rollingPath+"/"+objectName(o), w.body(o))
		cancel()
		if err != nil {
			return err
		}
		rv, err := numberAfter(answer, `"resourceVersion":"`)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.log = append(w.log, change{rv, o, was, w.flipped[o]})
		w.mu.Unlock()
	}
}

// count returns the number of acknowledged writes.
func (w *changes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.log)
}
