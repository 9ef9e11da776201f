package framing_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// podFields are selectable fields of a Pod: strings, a bool, and an array's first element with a fallback.
var podFields = []framing.Field{
	{Label: "spec.nodeName", Paths: [][]string{{"spec", "nodeName"}}},
	{Label: "spec.hostNetwork", Paths: [][]string{{"spec", "hostNetwork"}}, Default: "false"},
	{Label: "spec.restartPolicy", Paths: [][]string{{"spec", "restartPolicy"}}},
	{Label: "status.phase", Paths: [][]string{{"status", "phase"}}},
	{Label: "status.podIP", Paths: [][]string{{"status", "podIPs", "[0]", "ip"}, {"status", "podIP"}}},
}

func scan(t testing.TB, line []byte) framing.Event {
	t.Helper()
	ev, err := framing.NewScanner(podFields).Event(line)
	if err != nil {
		t.Fatalf("%v\nin %.300s", err, line)
	}
	return ev
}

// payload returns what a client reads of a frame, through an independent reader of chunks.
func payload(t testing.TB, f framing.Frame) []byte {
	t.Helper()
	wire := bytes.Join([][]byte{f.Head, f.Body, []byte(framing.LastChunk)}, nil)
	if f.Len() != len(wire)-len(framing.LastChunk) {
		t.Errorf("Len() = %d, want %d", f.Len(), len(wire)-len(framing.LastChunk))
	}
	got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(wire)))
	if err != nil {
		t.Fatalf("%v\nin %.300q", err, wire)
	}
	if own := f.Payload([]byte("before")); string(own) != "before"+string(got) {
		t.Errorf("Payload = %.300q, want %.300q", own, got)
	}
	return got
}

func checkFrame(t testing.TB, what string, f framing.Frame, want []byte) {
	t.Helper()
	if got := payload(t, f); !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// objectOf returns the object's bytes of a line.
func objectOf(t testing.TB, line []byte) []byte {
	t.Helper()
	_, rest, ok := bytes.Cut(line, []byte(`,"object":`))
	if !ok || !bytes.HasSuffix(rest, []byte("}\n")) {
		t.Fatalf("not a line of a watch: %s", line)
	}
	return rest[:len(rest)-2]
}

// Every event goes to clients in the bytes in which it came.
func TestGoldenEvents(t *testing.T) {
	for _, c := range readTestdata(t) {
		t.Run(c.file, func(t *testing.T) {
			events := 0
			for _, section := range []string{"all", "selected", "initial"} {
				for _, line := range c.lines(section) {
					ev := scan(t, line)
					if ev.Type == framing.Bookmark {
						continue
					}
					events++
					checkFrame(t, section, ev.Object.Frame(ev.Type), line)
					if got, want := ev.Object.JSON(), objectOf(t, line); !bytes.Equal(got, want) {
						t.Errorf("JSON = %s\nwant %s", got, want)
					}
					for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
						want := bytes.Replace(line, []byte(`"`+ev.Type.String()+`"`), []byte(`"`+typ.String()+`"`), 1)
						checkFrame(t, "as "+typ.String(), ev.Object.Frame(typ), want)
						checkFrame(t, "made to be "+typ.String(), ev.Object.As(typ).Frame(typ), want)
					}
				}
			}
			if events == 0 {
				t.Error("no events in testdata")
			}
		})
	}
}

// What entering and leaving a selector looks like is taken from a real watcher of sel=1, and made from the events that a
// watcher of everything got at the same time.
func TestGoldenSelector(t *testing.T) {
	for _, c := range readTestdata(t) {
		if c.file == "raw" {
			continue
		}
		t.Run(c.file, func(t *testing.T) {
			all, selected := c.lines("all"), c.lines("selected")
			if len(all) < 8 || len(selected) != len(all)-1 {
				t.Fatalf("testdata has %d and %d events", len(all), len(selected))
			}
			version := func(i int) *framing.Object { return scan(t, all[i]).Object }
			checkFrame(t, "enters", version(1).Frame(framing.Added), selected[0])
			checkFrame(t, "changes", version(2).Frame(framing.Modified), selected[1])
			checkFrame(t, "leaves", version(2).Left(version(3).ResourceVersion), selected[2])
			checkFrame(t, "enters again", version(4).Frame(framing.Added), selected[3])
			for i := 5; i < len(all); i++ { // b, which was born in it, and both deletions
				ev := scan(t, all[i])
				checkFrame(t, "later", ev.Object.Frame(ev.Type), selected[i-1])
			}
		})
	}
}

// A deletion that only a list has shown looks like the one that a watch would have shown.
func TestGoldenDeleted(t *testing.T) {
	for _, c := range readTestdata(t) {
		if c.file == "raw" {
			continue
		}
		t.Run(c.file, func(t *testing.T) {
			form, _, err := framing.ParseListForm(c.sections["empty"])
			if err != nil {
				t.Fatal(err)
			}
			before := make(map[string]*framing.Object)
			deletions := 0
			for _, line := range c.lines("all") {
				ev := scan(t, line)
				last := before[ev.Object.Key]
				before[ev.Object.Key] = ev.Object
				if ev.Type != framing.Deleted {
					continue
				}
				deletions++
				rv := ev.ResourceVersion
				d := last.Deleted(rv)
				checkFrame(t, "deleted", d.Frame(framing.Deleted), line)
				if d.ResourceVersion != rv || d.Key != last.Key {
					t.Errorf("got %s at %d, want %s at %d", d.Key, d.ResourceVersion, last.Key, rv)
				}
				// Offsets move with the number of digits.
				longer := last.Deleted(1 << 60)
				checkFrame(t, "deleted twice", longer.Deleted(rv).Frame(framing.Deleted), line)
				checkFrame(t, "left", longer.Left(rv), line)
				_, want := form.Item(last, true)
				want = bytes.Replace(want, fmt.Appendf(nil, "%q", fmt.Sprint(last.ResourceVersion)), fmt.Appendf(nil, "%q", fmt.Sprint(1<<60)), 1)
				if _, got := form.Item(longer, true); !bytes.Equal(got, want) {
					t.Errorf("item %s\nwant %s", got, want)
				}
			}
			if deletions != 2 {
				t.Errorf("%d deletions in testdata, want 2", deletions)
			}
		})
	}
}

// Both bookmarks are made, byte for byte, from the form of the one that ends the initial events, and the periodic one
// also from itself.
func TestGoldenBookmarks(t *testing.T) {
	for _, c := range readTestdata(t) {
		t.Run(c.file, func(t *testing.T) {
			initial := c.lines("initial")
			line := initial[len(initial)-1]
			end := scan(t, line)
			if end.Type != framing.Bookmark || !end.InitialEventsEnd || !end.Form.HasEnd() || !end.Form.HasPlain() {
				t.Fatalf("read as %+v: %s", end, line)
			}
			checkFrame(t, "end", end.Form.Frame(end.ResourceVersion, true), line)

			for _, line := range c.lines("bookmark") {
				plain := scan(t, line)
				if plain.Type != framing.Bookmark || plain.InitialEventsEnd || plain.Form.HasEnd() || !plain.Form.HasPlain() {
					t.Fatalf("read as %+v: %s", plain, line)
				}
				checkFrame(t, "periodic", end.Form.Frame(plain.ResourceVersion, false), line)
				checkFrame(t, "periodic from its own form", plain.Form.Frame(plain.ResourceVersion, false), line)
			}
			if len(c.lines("bookmark")) == 0 && c.file != "event" && c.file != "raw" {
				t.Error("no periodic bookmark in testdata")
			}
		})
	}
}

func TestGoldenError(t *testing.T) {
	found := false
	for _, c := range readTestdata(t) {
		for _, line := range c.lines("expired") {
			found = true
			ev := scan(t, line)
			if ev.Type != framing.Error || ev.Status.Code != 410 || ev.Status.Reason != "Expired" || ev.Object != nil {
				t.Errorf("read as %+v: %s", ev, line)
			}
			if !strings.HasPrefix(ev.Status.Message, "too old resource version: 1 (") {
				t.Errorf("message %q", ev.Status.Message)
			}
			checkFrame(t, "error", framing.ErrorFrame(objectOf(t, line)), line)
			withNewline := append(bytes.Clone(objectOf(t, line)), '\n')
			checkFrame(t, "error with newline", framing.ErrorFrame(withNewline), line)
		}
	}
	if !found {
		t.Error("no error in testdata")
	}
}

// A list is put together from the versions that a watch has brought, and read into what a watch would bring.
func TestGoldenLists(t *testing.T) {
	for _, c := range readTestdata(t) {
		t.Run(c.file, func(t *testing.T) {
			body := c.sections["list"]
			empty := c.sections["empty"]
			if empty == nil {
				empty = body
			}
			form, meta, err := framing.ParseListForm(empty)
			if err != nil {
				t.Fatal(err)
			}
			if c.sections["empty"] != nil {
				head, tail := form.Envelope(meta)
				if got := string(head) + string(tail); got != string(empty) {
					t.Errorf("empty list %s\nwant %s", got, empty)
				}
			}
			var objects []*framing.Object
			for _, line := range c.lines("initial") {
				if ev := scan(t, line); ev.Type == framing.Added {
					objects = append(objects, ev.Object)
				}
			}
			items, meta := readList(t, form, body)
			if got := assemble(form, meta, objects); !bytes.Equal(got, body) {
				t.Errorf("list %s\nwant %s", got, body)
			}
			if len(items) != len(objects) {
				t.Fatalf("%d items, want %d", len(items), len(objects))
			}
			for i, o := range objects {
				checkFrame(t, "item", items[i].Frame(framing.Added), payload(t, o.Frame(framing.Added)))
				checkFrame(t, "item that left", items[i].Left(1), payload(t, o.Left(1)))
			}
			if got := assemble(form, meta, items); !bytes.Equal(got, body) {
				t.Errorf("list of items %s\nwant %s", got, body)
			}

			page := c.sections["page"]
			if page == nil {
				return
			}
			var counted struct {
				Metadata struct{ RemainingItemCount int64 }
			}
			if err := json.Unmarshal(page, &counted); err != nil {
				t.Fatal(err)
			}
			items, meta = readList(t, form, page)
			meta.RemainingItemCount = counted.Metadata.RemainingItemCount
			if len(items) != 1 || meta.Continue == "" || meta.RemainingItemCount == 0 {
				t.Errorf("page has %d items and %+v", len(items), meta)
			}
			if got := assemble(form, meta, items); !bytes.Equal(got, page) {
				t.Errorf("page %s\nwant %s", got, page)
			}
		})
	}
}

func readList(t testing.TB, form framing.ListForm, body []byte) ([]*framing.Object, framing.ListMeta) {
	t.Helper()
	kind := kindOf(t, body)
	s := framing.NewScanner(nil)
	// One byte at a time, so that no item is ever whole in the reader's buffer by luck.
	r := framing.NewListReader(oneByte{bytes.NewReader(body)})
	var items []*framing.Object
	for {
		raw, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.Item(raw, form.TypeMeta(kind))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, o)
	}
	meta, err := r.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	return items, meta
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

func kindOf(t testing.TB, list []byte) string {
	var l struct{ Kind string }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(l.Kind, "List")
}

func assemble(form framing.ListForm, meta framing.ListMeta, objects []*framing.Object) []byte {
	body, tail := form.Envelope(meta)
	for i, o := range objects {
		open, rest := form.Item(o, i == 0)
		body = append(append(body, open...), rest...)
	}
	return append(body, tail...)
}
