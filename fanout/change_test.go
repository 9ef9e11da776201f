package fanout_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// What a client with a selector gets of a change
// (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, convertToWatchEvent).
func TestEventMapping(t *testing.T) {
	in := &thing{namespace: "a", name: "x", rv: 1, labels: map[string]string{"l": "1"}, data: "old"}
	out := &thing{namespace: "a", name: "x", rv: 1, data: "old"}
	f := func(prev, cur *thing, want string) {
		t.Helper()
		e := &fanout.Change{Type: framing.Added}
		switch {
		case cur == nil:
			e.Type, e.Prev, e.Object = framing.Deleted, object(prev), event("DELETED", prev.at(2)).Object
		case prev == nil:
			e.Object = object(cur.at(2))
		default:
			e.Type, e.Prev, e.Object = framing.Modified, object(prev), event("MODIFIED", cur.at(2)).Object
		}
		frame, ok := e.FrameFor(sel(t, "", "l=1", "").filter(t))
		if got := string(frame.Payload(nil)); got != want || ok != (want != "") {
			t.Errorf("got %q, %v, want %q", got, ok, want)
		}
		if e.Unresolved(sel(t, "", "l=1", "").filter(t)) {
			t.Error("undecidable, with everything known")
		}
	}
	later := *in
	later.data = "new"
	laterOut := *out
	laterOut.data = "new"
	f(nil, in, line("ADDED", in.at(2)))
	f(nil, out, "")
	f(out, &later, line("ADDED", later.at(2)))
	f(in, &later, line("MODIFIED", later.at(2)))
	f(in, &laterOut, line("DELETED", in.at(2))) // the version before, with the label and the old data
	f(out, &laterOut, "")
	f(in, nil, line("DELETED", in.at(2)))
	f(out, nil, "")
}

// Clients that get the same frame share its bytes: an event is encoded once.
func TestEventSharesFrames(t *testing.T) {
	in := &thing{name: "x", rv: 1, labels: map[string]string{"l": "1"}}
	out := &thing{name: "x", rv: 2}
	left := &fanout.Change{Type: framing.Modified, Prev: object(in), Object: event("MODIFIED", out).Object}
	a, ok := left.FrameFor(sel(t, "", "l=1", "").filter(t))
	b, ok2 := left.FrameFor(sel(t, "", "l", "").filter(t))
	if !ok || !ok2 || &a.Body[0] != &b.Body[0] {
		t.Error("two filters that an object leaves have a frame each")
	}
}

// A replay knows the changes, but not the versions before it began.
func TestEventPrevUnknown(t *testing.T) {
	in := &thing{namespace: "a", name: "x", rv: 2, labels: map[string]string{"l": "1"}}
	f := func(typ, namespace, ls, fs, want string, undecidable bool) {
		t.Helper()
		ev := event(typ, in)
		e := &fanout.Change{Type: ev.Type, Object: ev.Object, PrevUnknown: true}
		filter := sel(t, namespace, ls, fs).filter(t)
		if got := e.Unresolved(filter); got != undecidable {
			t.Errorf("%s for %q, %q, %q: undecidable %v, want %v", typ, namespace, ls, fs, got, undecidable)
		}
		if undecidable {
			return
		}
		frame, _ := e.FrameFor(filter)
		if got := string(frame.Payload(nil)); got != want {
			t.Errorf("%s for %q, %q, %q: got %s, want %s", typ, namespace, ls, fs, got, want)
		}
	}
	// Namespace and name never change, so the version before had the same.
	f("MODIFIED", "", "", "", line("MODIFIED", in), false)
	f("MODIFIED", "a", "", "", line("MODIFIED", in), false)
	f("MODIFIED", "b", "", "", "", false)
	f("MODIFIED", "", "", "metadata.name=x", line("MODIFIED", in), false)
	f("MODIFIED", "", "", "metadata.name!=x", "", false)
	f("MODIFIED", "", "", "metadata.namespace!=b", line("MODIFIED", in), false)
	// A deletion carries the version before.
	f("DELETED", "", "l=1", "", line("DELETED", in), false)
	f("DELETED", "", "l=2", "", "", false)
	f("DELETED", "", "", "spec.node!=x", line("DELETED", in), false)
	// Otherwise only the unknown version could decide.
	f("MODIFIED", "", "l=1", "", "", true)
	f("MODIFIED", "", "l=2", "", "", true)
	f("MODIFIED", "", "!l", "", "", true)
	f("MODIFIED", "", "", "spec.node=", "", true)
	f("MODIFIED", "b", "l=1", "", "", false) // not in scope
}

// readTestdata returns the captured watches of kube-apiserver from package framing, by kind: what a
// watch of everything got, and what a watch of sel=1 got at the same time.
func readTestdata(t *testing.T) map[string]map[string][]string {
	paths, err := filepath.Glob("../framing/testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	kinds := make(map[string]map[string][]string)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sections := make(map[string][]string)
		name := ""
		for line := range bytes.Lines(data) {
			if rest, ok := strings.CutPrefix(string(line), "-- "); ok {
				name = strings.TrimSuffix(rest, " --\n")
				continue
			}
			sections[name] = append(sections[name], string(line))
		}
		if len(sections["selected"]) > 0 {
			kinds[strings.TrimSuffix(filepath.Base(path), ".txt")] = sections
		}
	}
	return kinds
}

// From what a watch of everything got of kube-apiserver, clients of sel=1 get byte for byte what
// kube-apiserver sent to such a client, whenever they join and wherever they begin.
func TestEventGolden(t *testing.T) {
	for kind, sections := range readTestdata(t) {
		t.Run(kind, func(t *testing.T) {
			scanner := framing.NewScanner(framing.JSON, nil)
			var events []framing.Event
			for _, l := range sections["all"] {
				ev, err := scanner.Event([]byte(l))
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, ev)
			}
			start := events[0].ResourceVersion - 1
			f := newFlusher(1)
			run(t, f)
			w := bareWorld(t, roomy, f, start)
			c := w.cache
			selected := sel(t, "", "set=golden,sel=1", "")
			_, live := w.client(selected, fanout.Request{Start: fanout.FromNow})
			_, everything := w.client(sel(t, "", "", ""), fanout.Request{Start: fanout.FromNow})

			// want[i] is what a client of sel=1 gets that starts before event i.
			want := make([][]string, len(events)+1)
			rest := sections["selected"]
			for i, ev := range events {
				want[i] = rest
				if _, ok := versionOf(t, rest, ev.ResourceVersion); ok {
					rest = rest[1:]
				}
			}
			var joined []*recorder
			for _, ev := range events {
				_, r := w.client(selected, fanout.Request{Start: fanout.FromNow})
				joined = append(joined, r)
				if err := c.Apply(ev, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			live.wantLines(t, sections["selected"]...)
			everything.wantLines(t, sections["all"]...)
			for i, r := range joined {
				r.wantLines(t, want[i]...)
				from := start
				if i > 0 {
					from = events[i-1].ResourceVersion
				}
				_, replayed := w.client(selected, fanout.Request{Start: fanout.FromVersion, ResourceVersion: from})
				replayed.wantLines(t, want[i]...)
			}
		})
	}
}

// versionOf reports whether the first of lines is about resourceVersion rv.
func versionOf(t *testing.T, lines []string, rv uint64) (string, bool) {
	if len(lines) == 0 {
		return "", false
	}
	ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(lines[0]))
	if err != nil {
		t.Fatal(err)
	}
	return lines[0], ev.ResourceVersion == rv
}
