package framing_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http/httputil"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/framing"
)

// podFields are selectable fields of a Pod: strings, a bool, and an array's first element with a
// fallback.
var podFields = []framing.Field{
	{Label: "spec.nodeName", Paths: [][]string{{"spec", "nodeName"}}, Numbers: [][]int32{{2, 10}}},
	{Label: "spec.hostNetwork", Paths: [][]string{{"spec", "hostNetwork"}}, Numbers: [][]int32{{2, 11}},
		Default: "false"},
	{Label: "spec.restartPolicy", Paths: [][]string{{"spec", "restartPolicy"}}, Numbers: [][]int32{{2, 3}}},
	{Label: "status.phase", Paths: [][]string{{"status", "phase"}}, Numbers: [][]int32{{3, 1}}},
	{Label: "status.podIP", Paths: [][]string{{"status", "podIPs", "[0]", "ip"}, {"status", "podIP"}},
		Numbers: [][]int32{{3, 12, 1}, {3, 6}}},
}

// scanAs reads an event without its length.
func scanAs(t testing.TB, e framing.Encoding, event []byte) framing.Event {
	t.Helper()
	ev, err := framing.NewScanner(e, podFields).Event(event)
	if err != nil {
		t.Fatalf("%v\nin %.300q", err, event)
	}
	return ev
}

func scan(t testing.TB, line []byte) framing.Event { return scanAs(t, framing.JSON, line) }

// scan reads an event as it was in the stream.
func (c captured) scan(t testing.TB, event []byte) framing.Event {
	t.Helper()
	var fields []framing.Field
	if c.file == "pod" {
		fields = podFields
	}
	r := framing.NewEventReader(c.encoding, bytes.NewReader(event))
	read, err := r.Next()
	if err != nil {
		t.Fatalf("%v\nin %.300q", err, event)
	}
	ev, err := framing.NewScanner(c.encoding, fields).Event(read)
	if err != nil {
		t.Fatalf("%v\nin %.300q", err, event)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("behind the event: %v", err)
	}
	return ev
}

// objects returns the objects of all captured events.
func (c captured) objects(t testing.TB) (objects []*framing.Object) {
	t.Helper()
	for _, section := range []string{"all", "selected", "initial"} {
		for _, event := range c.events(section) {
			if ev := c.scan(t, event); ev.Type != framing.Bookmark {
				objects = append(objects, ev.Object)
			}
		}
	}
	return objects
}

// form returns the form of the captured lists.
func (c captured) form(t testing.TB) framing.ListForm {
	t.Helper()
	form, _, err := framing.ParseListForm(c.encoding, c.bytes("empty"))
	if err != nil {
		t.Fatal(err)
	}
	return form
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
	if got := payload(t, f); !sameBytes(t, got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// objectOf returns the bytes of an event's object.
func (c captured) objectOf(t testing.TB, event []byte) []byte {
	t.Helper()
	switch c.encoding {
	case framing.Protobuf:
		return decodeEvent(t, event).Object.Raw
	case framing.CBOR:
		return readCBOREvent(t, event).Object
	}
	_, rest, ok := bytes.Cut(event, []byte(`,"object":`))
	if !ok || !bytes.HasSuffix(rest, []byte("}\n")) {
		t.Fatalf("not a line of a watch: %s", event)
	}
	return rest[:len(rest)-2]
}

// retyped returns an event with another type.
func (c captured) retyped(t testing.TB, event []byte, was, is framing.EventType) []byte {
	t.Helper()
	switch c.encoding {
	case framing.Protobuf:
		return encodeEvent(t, is.String(), decodeEvent(t, event).Object.Raw)
	case framing.CBOR:
		return cborEvent(is.String(), readCBOREvent(t, event).Object)
	}
	return bytes.Replace(event, []byte(`"`+was.String()+`"`), []byte(`"`+is.String()+`"`), 1)
}

func decodeEvent(t testing.TB, event []byte) metav1.WatchEvent {
	t.Helper()
	var ev metav1.WatchEvent
	if len(event) < 4 || ev.Unmarshal(event[4:]) != nil {
		t.Fatalf("not a WatchEvent: %q", event)
	}
	return ev
}

func encodeEvent(t testing.TB, typ string, object []byte) []byte {
	t.Helper()
	ev := metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: object}}
	message, err := ev.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// Every event goes to clients in the bytes in which it came.
func TestGoldenEvents(t *testing.T) {
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			events := 0
			for _, section := range []string{"all", "selected", "initial"} {
				for _, event := range c.events(section) {
					ev := c.scan(t, event)
					if ev.Type == framing.Bookmark {
						continue
					}
					events++
					checkFrame(t, section, ev.Object.Frame(ev.Type), event)
					if got, want := ev.Object.Bytes(), c.objectOf(t, event); !sameBytes(t, got, want) {
						t.Errorf("object %q\nwant %q", got, want)
					}
					for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
						want := c.retyped(t, event, ev.Type, typ)
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

// The scanner reads the same of an object in every representation: these events were captured at
// the same time.
func TestGoldenRepresentations(t *testing.T) {
	compared, uids := 0, 0
	for _, c := range readEverything(t) {
		for _, j := range readTestdata(t) {
			if j.file != c.file || c.representation == asJSON {
				continue
			}
			for _, section := range []string{"all", "selected", "initial"} {
				for i, event := range c.events(section) {
					got, want := c.scan(t, event), j.scan(t, j.events(section)[i])
					compared++
					if got.Type != want.Type || got.InitialEventsEnd != want.InitialEventsEnd {
						t.Errorf("%s %s: read %+v, want %+v", c, section, got, want)
					}
					if got.Type == framing.Bookmark {
						continue // its resourceVersion is that of its own watch
					}
					a, b := got.Object, want.Object
					if b.UID() != "" && bytes.Contains(b.Bytes(), []byte(`"uid":"`+b.UID()+`"`)) {
						uids++
					}
					if a.Key != b.Key || a.Namespace != b.Namespace || a.Name != b.Name ||
						a.ResourceVersion != b.ResourceVersion || a.UID() != b.UID() ||
						!maps.Equal(a.Labels, b.Labels) ||
						!c.metadata && !slices.Equal(a.Fields, b.Fields) {
						t.Errorf("%s %s: read %+v, want %+v", c, section, a, b)
					}
				}
			}
		}
	}
	if compared < 100 || uids == 0 {
		t.Errorf("%d events compared, %d of objects with a uid", compared, uids)
	}
}

// Entering and leaving a selector: the events of a real watch of sel=1 are made from the events of
// a watch of everything, captured at the same time.
func TestGoldenSelector(t *testing.T) {
	for _, c := range readEverything(t) {
		if c.file == "raw" {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			all, selected := c.events("all"), c.events("selected")
			if len(all) < 8 || len(selected) != len(all)-1 {
				t.Fatalf("testdata has %d and %d events", len(all), len(selected))
			}
			version := func(i int) *framing.Object { return c.scan(t, all[i]).Object }
			checkFrame(t, "enters", version(1).Frame(framing.Added), selected[0])
			checkFrame(t, "changes", version(2).Frame(framing.Modified), selected[1])
			checkFrame(t, "leaves", version(2).Left(version(3).ResourceVersion), selected[2])
			checkFrame(t, "enters again", version(4).Frame(framing.Added), selected[3])
			for i := 5; i < len(all); i++ { // b, which was created in the selector, and both deletions
				ev := c.scan(t, all[i])
				checkFrame(t, "later", ev.Object.Frame(ev.Type), selected[i-1])
			}
		})
	}
}

// A deletion that only a list has shown looks like one in a watch.
func TestGoldenDeleted(t *testing.T) {
	for _, c := range readEverything(t) {
		if c.file == "raw" {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			form := c.form(t)
			before := make(map[string]*framing.Object)
			deletions := 0
			for _, line := range c.events("all") {
				ev := c.scan(t, line)
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
				// What has moved is where the scanner would find it.
				found := c.scan(t, payload(t, longer.Frame(framing.Deleted))).Object
				if found.ResourceVersion != 1<<60 {
					t.Errorf("found resourceVersion %d, want %d", found.ResourceVersion, 1<<60)
				}
				got, want := form.AppendItem(nil, nil, longer, true), form.AppendItem(nil, nil, found, true)
				if !slices.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("item %q\nwant %q", got, want)
				}
			}
			if deletions != 2 {
				t.Errorf("%d deletions in testdata, want 2", deletions)
			}
		})
	}
}

// Both bookmarks are made, byte for byte, from the form of the one that ends the initial events.
// The periodic bookmark is also made from its own form.
func TestGoldenBookmarks(t *testing.T) {
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			initial := c.events("initial")
			line := initial[len(initial)-1]
			end := c.scan(t, line)
			if end.Type != framing.Bookmark || !end.InitialEventsEnd || !end.Form.HasEnd() {
				t.Fatalf("read as %+v: %q", end, line)
			}
			checkFrame(t, "end", end.Form.Frame(end.ResourceVersion, true), line)

			for _, line := range c.events("bookmark") {
				plain := c.scan(t, line)
				if plain.Type != framing.Bookmark || plain.InitialEventsEnd || plain.Form.HasEnd() {
					t.Fatalf("read as %+v: %s", plain, line)
				}
				checkFrame(t, "periodic", end.Form.Frame(plain.ResourceVersion, false), line)
				checkFrame(t, "periodic from its own form", plain.Form.Frame(plain.ResourceVersion, false), line)

				// Lengths follow the number of digits.
				for _, rv := range []uint64{1, 99, 1 << 32, 1<<64 - 1} {
					for _, last := range []bool{false, true} {
						frame := payload(t, end.Form.Frame(rv, last))
						ev := c.scan(t, frame)
						if ev.Type != framing.Bookmark || ev.ResourceVersion != rv || ev.InitialEventsEnd != last {
							t.Errorf("bookmark for %d, last %v, reads as %+v", rv, last, ev)
						}
						checkFrame(t, "bookmark of another's form", ev.Form.Frame(plain.ResourceVersion, false), line)
					}
				}
			}
			if len(c.events("bookmark")) == 0 && c.file != "event" && c.file != "raw" {
				t.Error("no periodic bookmark in testdata")
			}
		})
	}
}

func TestGoldenError(t *testing.T) {
	found := false
	for _, c := range readEverything(t) {
		for _, line := range c.events("expired") {
			found = true
			ev := c.scan(t, line)
			if ev.Type != framing.Error || ev.Status.Code != 410 || ev.Status.Reason != "Expired" || ev.Object != nil {
				t.Errorf("read as %+v: %q", ev, line)
			}
			if !strings.HasPrefix(ev.Status.Message, "too old resource version: 1 (") {
				t.Errorf("message %q", ev.Status.Message)
			}
			checkFrame(t, "error", framing.ErrorFrame(c.encoding, c.objectOf(t, line)), line)
			if c.encoding == framing.JSON {
				withNewline := append(bytes.Clone(c.objectOf(t, line)), '\n')
				checkFrame(t, "error with newline", framing.ErrorFrame(framing.JSON, withNewline), line)
			}
		}
	}
	if !found {
		t.Error("no error in testdata")
	}
}

// A Status may say when to come again.
func TestStatus(t *testing.T) {
	for e, event := range map[framing.Encoding][]byte{
		framing.JSON: []byte(`{"type":"ERROR","object":{"kind":"Status","metadata":{},"message":"m","reason":"TooManyRequests",` +
			`"details":{"name":"n","retryAfterSeconds":3},"code":429}}`),
		framing.Protobuf: protobufEvent(t, "ERROR", message(1, text(1, "")), text(2, "Failure"), text(3, "m"), text(4, "TooManyRequests"),
			message(5, text(1, "n"), varint(5, 3)), varint(6, 429)),
		framing.CBOR: cborEvent("ERROR", tagged(cborMap("kind", "Status", "metadata", cborMap(), "message", "m", "reason", "TooManyRequests",
			"details", cborMap("name", "n", "retryAfterSeconds", 3), "code", 429))),
	} {
		ev := scanAs(t, e, event)
		if s := ev.Status; ev.Type != framing.Error || s.Code != 429 || s.Reason != metav1.StatusReasonTooManyRequests || s.Message != "m" ||
			s.Details.RetryAfterSeconds != 3 {
			t.Errorf("%s: read %+v with status %+v", e, ev, s)
		}
	}
}

// A list is assembled from the versions that a watch has brought, and its items are read as the
// objects that a watch would bring.
func TestGoldenLists(t *testing.T) {
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			body := c.bytes("list")
			empty := c.bytes("empty")
			form, meta, err := framing.ParseListForm(c.encoding, empty)
			if err != nil {
				t.Fatal(err)
			}
			head, tail := form.Envelope(meta, 0, 0)
			if got := slices.Concat(head, tail); !sameBytes(t, got, empty) {
				t.Errorf("empty list %q\nwant %q", got, empty)
			}
			var objects []*framing.Object
			for _, line := range c.events("initial") {
				if ev := c.scan(t, line); ev.Type == framing.Added {
					objects = append(objects, ev.Object)
				}
			}
			items, meta := c.readList(t, form, body)
			if got := assemble(form, meta, objects); !sameBytes(t, got, body) {
				t.Errorf("list %q\nwant %q", got, body)
			}
			if len(items) != len(objects) {
				t.Fatalf("%d items, want %d", len(items), len(objects))
			}
			for i, o := range objects {
				checkFrame(t, "item", items[i].Frame(framing.Added), payload(t, o.Frame(framing.Added)))
				checkFrame(t, "item that left", items[i].Left(1), payload(t, o.Left(1)))
			}
			if got := assemble(form, meta, items); !sameBytes(t, got, body) {
				t.Errorf("list of items %q\nwant %q", got, body)
			}

			page := c.bytes("page")
			if len(page) == 0 {
				return
			}
			items, meta = c.readList(t, form, page)
			if len(items) != 1 || meta.Continue == "" || meta.RemainingItemCount == 0 {
				t.Errorf("page has %d items and %+v", len(items), meta)
			}
			if got := assemble(form, meta, items); !sameBytes(t, got, page) {
				t.Errorf("page %q\nwant %q", got, page)
			}
		})
	}
}

// An event shares no memory with the bytes that it was read from, because the reader reuses them.
func TestGoldenCopies(t *testing.T) {
	for _, c := range readEverything(t) {
		var fields []framing.Field
		if c.file == "pod" || c.encoding != framing.Protobuf { // in which fields have numbers
			fields = podFields
		}
		s := framing.NewScanner(c.encoding, fields)
		for _, event := range slices.Concat(c.events("all"), c.events("initial")) {
			event, err := framing.NewEventReader(c.encoding, bytes.NewReader(event)).Next()
			if err != nil {
				t.Fatal(err)
			}
			read := bytes.Clone(event)
			ev, err := s.Event(read)
			if err != nil {
				t.Fatal(err)
			}
			for i := range read {
				read[i] = 'x'
			}
			if want, err := s.Event(event); err != nil || !reflect.DeepEqual(ev, want) {
				t.Fatalf("%s: the event changed with the bytes: %+v, want %+v, %v", c, ev, want, err)
			}
		}
	}
}

// A list that ends early is an error, wherever it ends. Taken as complete, it would delete objects.
func TestGoldenTruncatedLists(t *testing.T) {
	for _, c := range readEverything(t) {
		if c.file != "configmap" && c.file != "customresource" {
			continue
		}
		body := bytes.TrimSuffix(c.bytes("list"), []byte("\n"))
		for n := range len(body) {
			if _, _, err := readItems(c.encoding, bytes.NewReader(body[:n])); err == nil || c.encoding != framing.JSON && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: the first %d of %d bytes: %v", c, n, len(body), err)
			}
		}
	}
	broken := errors.New("broken")
	list := protobufList(listMeta("7", ""), text(2, "a"), text(2, "b"))
	for e, begin := range map[framing.Encoding]string{framing.JSON: `{"items":[{}`, framing.Protobuf: string(list[:len(list)-6])} {
		if items, _, err := readItems(e, io.MultiReader(strings.NewReader(begin), iotest.ErrReader(broken))); len(items) != 1 || !errors.Is(err, broken) {
			t.Errorf("%s: %d items, %v", e, len(items), err)
		}
	}
}

func (c captured) readList(t testing.TB, form framing.ListForm, body []byte) ([]*framing.Object, framing.ListMeta) {
	t.Helper()
	typeMeta := form.TypeMeta(c.kindOf(t, body))
	s := framing.NewScanner(c.encoding, nil)
	// One byte at a time, so no item is complete in the reader's buffer by luck.
	raw, meta, err := readItems(c.encoding, iotest.OneByteReader(bytes.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	var items []*framing.Object
	for _, item := range raw {
		o, err := s.Item(item, typeMeta)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, o)
	}
	return items, meta
}

// eventErrors returns a check of the error of an event.
func eventErrors[B ~string | ~[]byte](t *testing.T, e framing.Encoding) func(event B, want string) {
	return func(event B, want string) {
		t.Helper()
		_, err := framing.NewScanner(e, podFields).Event([]byte(event))
		wantError(t, []byte(event), err, "read watch event: ", want)
	}
}

// wantError checks what an error begins with and contains.
func wantError(t testing.TB, input []byte, err error, prefix, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), want) {
		t.Errorf("%q: error %v, want %q", input, err, prefix+"… "+want)
	}
}

// kindOf returns the kind of a resource whose list was captured. Lists of metadata do not say it.
func (c captured) kindOf(t testing.TB, list []byte) string {
	t.Helper()
	if c.metadata {
		return "Pod"
	}
	switch c.encoding {
	case framing.Protobuf:
		var u runtime.Unknown
		if err := u.Unmarshal(list[4:]); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(u.Kind, "List")
	case framing.CBOR:
		kind, _ := decodeCBOR(t, list).(map[string]any)["kind"].(string)
		return strings.TrimSuffix(kind, "List")
	}
	var l struct{ Kind string }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(l.Kind, "List")
}

func assemble(form framing.ListForm, meta framing.ListMeta, objects []*framing.Object) []byte {
	return assembleTrimmed(form, meta, objects, nil)
}

// assembleTrimmed is assemble for objects without the fields of trim.
func assembleTrimmed(form framing.ListForm, meta framing.ListMeta, objects []*framing.Object, trim *framing.Trim) []byte {
	var parts [][]byte
	for i, o := range objects {
		parts = form.AppendItem(parts, trim, o, i == 0)
	}
	items := bytes.Join(parts, nil)
	head, tail := form.Envelope(meta, len(objects), len(items))
	return slices.Concat(head, items, tail)
}
