package framing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/framing"
)

// Everything that is not a watch event is an error, because the stream can no longer be trusted.
func TestScannerErrors(t *testing.T) {
	f := eventErrors[string](t, framing.JSON)
	object := func(metadata string) string { return `{"type":"ADDED","object":{"metadata":{` + metadata + `}}}` }
	f(``, "unexpected EOF")
	f(`{`, "EOF")
	f(`[]`, "expected an object")
	f(`{"type":"ADDED"}`, "no object")
	f(`{"type":"ADDED","object":null}`, "expected an object")
	f(`{"type":1,"object":{}}`, "expected a string")
	f(`{"type":"MOVED","object":{}}`, `unknown type "MOVED"`)
	f(`{"object":{}}`, `unknown type ""`)
	f(`{"type":"ADDED","object":{}}`, "without metadata.name")
	f(`{"type":"ADDED","object":{"metadata":null}}`, "expected an object")
	f(object(`"name":"x"`), "without metadata.resourceVersion")
	f(object(`"name":1,"resourceVersion":"1"`), "expected a string")
	f(object(`"name":"x","resourceVersion":"0"`), "resourceVersion")
	f(object(`"name":"x","resourceVersion":""`), "resourceVersion")
	f(object(`"name":"x","resourceVersion":5`), "resourceVersion")
	f(object(`"name":"x","resourceVersion":"-5"`), "resourceVersion")
	f(object(`"name":"x","resourceVersion":"18446744073709551616"`), "resourceVersion")
	f(object(`"name":"x","resourceVersion":"1","labels":{"a":{}}`), "expected a string")
	f(object(`"name":"x","resourceVersion":"1"`)+`{}`, "after")
	f(object(`"name":"x","resourceVersion":"1"`)+"\n{", "")
	f(object(`"managedFields":[],"name":"x","resourceVersion":"1","managedFields":[]`), "managedFields: found for a second time")
	f(`{"type":"ADDED","object":{"metadata":{"managedFields":[],"name":"x"},"metadata":{"resourceVersion":"1","managedFields":[]}}}`,
		"managedFields: found for a second time")
	f(`{"type":"BOOKMARK","object":{"metadata":{}}}`, "BOOKMARK without resourceVersion")
	f(`{"type":"ERROR","object":{"code":"x"}}`, "ERROR")
	f(strings.Repeat(`{"object":`, 20_000), "levels")
}

// Two objects may have the same identity in JSON if it has bytes that JSON cannot express. Protobuf
// and CBOR have the bytes themselves.
func TestReplacedIdentity(t *testing.T) {
	f := func(metadata string, replaced bool) {
		t.Helper()
		object := []byte(`{"metadata":{` + metadata + `,"resourceVersion":"7"}}`)
		line := slices.Concat([]byte(`{"type":"MODIFIED","object":`), object, []byte("}\n"))
		s := framing.NewScanner(framing.JSON, nil)
		if _, err := s.Event(line); errors.Is(err, framing.ErrReplaced) != replaced {
			t.Errorf("event with %s: error %v", metadata, err)
		}
		if _, err := s.Item(object, nil); errors.Is(err, framing.ErrReplaced) != replaced {
			t.Errorf("item with %s: error %v", metadata, err)
		}
	}
	for _, member := range []string{`"name":"u%s"`, `"name":"x","namespace":"%s"`, `"uid":"%s","name":"x"`} {
		for _, text := range []string{`\ufffd`, `a\uFFFDb`, "a\ufffd", "a\xff", `\u0061` + "\xfe", `\ud800`} {
			f(fmt.Sprintf(member, text), true)
		}
		for _, text := range []string{"a", "é😀", `\u00e9\ud83d\ude00`, `\n\u0000`} {
			f(fmt.Sprintf(member, text), false)
		}
	}
	f(`"name":"x","labels":{"l":"\ufffd"},"annotations":{"a":"\ufffd"}`, false)

	for name, item := range map[string][]byte{
		"u\xff": cborMap("metadata", cborMap("name", "u\xff", "resourceVersion", "7")),
		"u\xfe": cborMap("metadata", cborMap("name", "u\xfe", "resourceVersion", "7")),
	} {
		o, err := framing.NewScanner(framing.CBOR, nil).Item(item, nil)
		if err != nil || o.Key != name {
			t.Errorf("CBOR: got %v, error %v, want %q", o, err, name)
		}
	}
	item := []byte("\x0a\x07\x0a\x02u\xff\x32\x017")
	if o, err := framing.NewScanner(framing.Protobuf, nil).Item(item, nil); err != nil || o.Key != "u\xff" {
		t.Errorf("protobuf: got %v, error %v", o, err)
	}
}

// White space between an object's members does not get into a list instead of a part of an item.
func TestListItemWithSpace(t *testing.T) {
	form, meta, err := framing.ParseListForm(framing.JSON,
		[]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, members := range []string{
		`"kind":"Pod","apiVersion":"v1",METADATA,"spec":{}`,
		`"kind" : "Pod" , "apiVersion" : "v1" , METADATA , "spec" : {}`,
		` "kind":"Pod", "apiVersion":"v1"` + "\n\t," + ` METADATA, "spec":{} `,
		` METADATA,"spec":{}`,
	} {
		object := "{" + strings.Replace(members, "METADATA", `"metadata":{"name":"x","resourceVersion":"7"}`, 1) + "}"
		o := scan(t, []byte(`{"type":"ADDED","object":`+object+"}\n")).Object
		list := assemble(form, meta, []*framing.Object{o, o})
		const item = `{"metadata":{"name":"x","resourceVersion":"7"},"spec":{}}`
		want := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + item + "," + item + `]}`
		if !json.Valid(list) || string(compact(t, list)) != want {
			t.Errorf("%s:\n got %s\nwant %s", members, list, want)
		}
	}
}

// twin is an event as another decoder reads it.
type twin struct {
	typ             string
	namespace, name string
	uid             string // "" if it is not a string
	rv              uint64
	labels          map[string]string
	fields          []string // nil if they are not compared
	end             bool     // of a bookmark
	message         string   // of an ERROR
	object          any      // without its resourceVersion and, if it is a bookmark, its annotation
}

// manyFields are podFields and others. A CustomResourceDefinition may make kind and apiVersion selectable.
var manyFields = append(slices.Clone(podFields),
	framing.Field{Label: "none", Default: "d"},
	framing.Field{Label: "deep", Paths: [][]string{{"x", "[0]", "[0]", "y"}}, Default: "0"},
	framing.Field{Label: "type", Paths: [][]string{{"type"}}},
	framing.Field{Label: "kind", Paths: [][]string{{"kind"}}},
	framing.Field{Label: "apiVersion", Paths: [][]string{{"apiVersion"}}})

// metadataTwin takes the metadata of an object in JSON or CBOR.
func (tw *twin) metadataTwin(object map[string]any) {
	tw.object = object
	m, _ := object["metadata"].(map[string]any)
	tw.namespace, tw.name = textAt(m, "namespace"), textAt(m, "name")
	tw.uid, _ = m["uid"].(string)
	if rv, err := strconv.ParseUint(textAt(m, "resourceVersion"), 10, 64); err == nil {
		tw.rv = rv
	}
	delete(m, "resourceVersion")
	labels, _ := m["labels"].(map[string]any)
	tw.labels = make(map[string]string)
	for key, value := range labels {
		tw.labels[key], _ = value.(string)
	}
	annotations, _ := m["annotations"].(map[string]any)
	if mark, marked := annotations[framing.InitialEventsEnd]; marked && tw.typ == "BOOKMARK" {
		tw.end = mark == "true"
		if delete(annotations, framing.InitialEventsEnd); len(annotations) == 0 {
			delete(m, "annotations")
		}
	}
}

// checkTwin compares an event, and what is made of it at a resourceVersion, with what another decoder
// reads, if that reads the event at all.
func checkTwin(
	t *testing.T, e framing.Encoding, s framing.Scanner, event []byte, ev framing.Event, rv uint64, decode func([]byte) (twin, bool),
) {
	want, known := decode(event)
	made := func(f framing.Frame, typ framing.EventType, rv uint64, end bool) framing.Event {
		t.Helper()
		event := payload(t, f)[e.LengthPrefix():]
		got, err := s.Event(event)
		if err != nil || got.Type != typ || got.ResourceVersion != rv || got.InitialEventsEnd != end {
			t.Fatalf("made %q, read as %+v, %v, want %s at %d, end %v", event, got, err, typ, rv, end)
		}
		want := want
		want.typ, want.rv, want.end = typ.String(), rv, end
		if tw, ok := decode(event); known && (!ok || !reflect.DeepEqual(tw, want)) {
			t.Fatalf("made %q\nread %+v\nwant %+v", event, tw, want)
		}
		return got
	}
	if known && (ev.Type.String() != want.typ || ev.InitialEventsEnd != want.end ||
		ev.Type == framing.Error && ev.Status.Message != want.message || ev.Type != framing.Error && ev.ResourceVersion != want.rv) {
		t.Fatalf("read %+v, want %+v", ev, want)
	}
	rv = max(rv, 1)
	if ev.Type == framing.Bookmark {
		made(ev.Form.Frame(rv, false), framing.Bookmark, rv, false)
		made(ev.Form.Frame(rv, ev.InitialEventsEnd), framing.Bookmark, rv, ev.InitialEventsEnd)
	}
	o := ev.Object
	if o == nil {
		return
	}
	key := want.name
	if want.namespace != "" {
		key = want.namespace + "/" + want.name
	}
	if known && (o.Key != key || o.Namespace != want.namespace || o.Name != want.name || o.UIDHash() != framing.HashOf(want.uid) ||
		!maps.Equal(o.Labels, want.labels) || want.fields != nil && !slices.Equal(o.Fields, want.fields)) {
		t.Fatalf("read %+v\nwant %+v", o, want)
	}
	if e != framing.CBOR && !bytes.Contains(event, o.Bytes()) {
		t.Fatalf("read %q of %q", o.Bytes(), event)
	}
	for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
		if again := made(o.Frame(typ), typ, o.ResourceVersion, false).Object; !bytes.Equal(again.Bytes(), o.Bytes()) {
			t.Fatalf("as %s: %q\nwant %q", typ, again.Bytes(), o.Bytes())
		}
	}
	left := made(o.Left(rv), framing.Deleted, rv, false).Object
	if left.Key != o.Key || !maps.Equal(left.Labels, o.Labels) || !slices.Equal(left.Fields, o.Fields) {
		t.Fatalf("left as %+v, want %+v", left, o)
	}
	for _, f := range []framing.Frame{o.Deleted(rv).Frame(framing.Deleted), o.Deleted(1).Left(rv), o.Deleted(1 << 63).Left(rv)} {
		if got, want := payload(t, f), payload(t, left.Frame(framing.Deleted)); !bytes.Equal(got, want) {
			t.Fatalf("left as %q, want %q", got, want)
		}
	}
}

var decimal = regexp.MustCompile(`^"0*[1-9][0-9]*"$`)

// jsonTwin reports whether kube-apiserver could have written the event.
func jsonTwin(line []byte) (tw twin, ok bool) {
	var ev, object, metadata map[string]json.RawMessage
	if json.Unmarshal(line, &ev) != nil || json.Unmarshal(ev["type"], &tw.typ) != nil ||
		json.Unmarshal(ev["object"], &object) != nil || object == nil {
		return tw, false
	}
	if raw, ok := object["metadata"]; ok && (json.Unmarshal(raw, &metadata) != nil || metadata == nil) {
		return tw, false
	}
	for name, v := range map[string]any{
		"namespace": new(string), "name": new(string), "labels": new(map[string]string), "annotations": new(map[string]json.RawMessage),
	} {
		if raw, ok := metadata[name]; ok && json.Unmarshal(raw, v) != nil {
			return tw, false
		}
	}
	version, ok := metadata["resourceVersion"]
	if ok && !decimal.Match(version) {
		return tw, false
	}
	dec := json.NewDecoder(bytes.NewReader(ev["object"]))
	dec.UseNumber()
	var tree map[string]any
	if dec.Decode(&tree) != nil {
		return tw, false
	}
	for _, f := range manyFields {
		tw.fields = append(tw.fields, valueOf(tree, f))
	}
	tw.metadataTwin(tree)
	var status metav1.Status
	switch tw.typ {
	case "ERROR":
		ok = json.Unmarshal(ev["object"], &status) == nil
		tw.message = status.Message
	case "ADDED", "MODIFIED", "DELETED":
		ok = tw.rv != 0 && tw.name != ""
	default:
		ok = tw.rv != 0 && tw.typ == "BOOKMARK"
	}
	return tw, ok && (version == nil || tw.rv != 0)
}

// escapedName finds a member name that is written with an escape, which no encoder does.
var escapedName = regexp.MustCompile(`\\(?:[^"\\]|\\.)*"\s*:`)

// ordinary reports whether a line is JSON as typed objects are encoded: UTF-8, and no name twice or
// with escapes.
func ordinary(line []byte) bool {
	return jsontext.Value(line).IsValid() && !escapedName.Match(line)
}

// seedEvents adds the captured events of representations as seeds, without their lengths.
func seedEvents(f *testing.F, representations ...representation) {
	for _, r := range representations {
		for _, c := range r.captured(f) {
			for _, section := range []string{"all", "initial", "bookmark", "expired"} {
				for i, event := range c.events(section) {
					if i < 3 {
						f.Add(event[r.encoding.LengthPrefix():], uint64(1)<<(20*i))
					}
				}
			}
		}
	}
}

// FuzzEvent compares with encoding/json.
func FuzzEvent(f *testing.F) {
	seedEvents(f, asJSON)
	seed := func(typ, members string) {
		f.Add([]byte(`{"type":"`+typ+`","object":{`+members+"}}\n"), uint64(12345678901234567))
	}
	for _, metadata := range []string{
		`"name":"x"`, `"name":"x","namespace":"a"`, `"namespace":"a","name":"a"`, `"name":"x","labels":{}`, `"name":"x","labels":null`,
		`"name":"x","labels":{"a":"1","b":"","c":null}`, `"name":"\u0078\"","labels":{"a":"\u0026"}`,
		`"ownerReferences":[{"name":"other","resourceVersion":"1"}],"name":"x"`,
		`"name":"x","uid":null`, `"name":"x","uid":"u"`, `"name":"x","uid":"\u0075\n"`,
	} {
		seed("ADDED", `"metadata":{`+metadata+`,"resourceVersion":"7"}`)
	}
	for _, members := range []string{
		`"spec":{"nodeName":"n1","hostNetwork":true}`, `"spec":{"nodeName":null,"hostNetwork":null}`, `"spec":null,"status":[1]`,
		`"spec":{"nodeName":{"a":1},"restartPolicy":["x"]}`, `"status":{"podIP":"1","podIPs":[{"ip":"2"},{"ip":"3"}]}`,
		`"status":{"podIPs":[{"ip":""},{"ip":"3"}],"podIP":"1"}`, `"status":{"podIPs":[],"podIP":"1","phase":"a\u002fb"}`,
		`"x":[[{"z":1,"y":12.50},{"y":2}],[{"y":3}]]`, `"spec":{"type":"inner"},"type":"Opaque"`,
		`"spec":{"nodeName":"other","hostNetwork":true,"restartPolicy":"r"},"status":{"phase":"p","podIP":"i"},"type":"T","x":[[{"y":9}]]`,
	} {
		seed("ADDED", members+`,"metadata":{"name":"n","resourceVersion":"7"}`)
	}
	const end = `"k8s.io/initial-events-end":"true"` // is cut out from any place among others, with one comma
	for _, metadata := range []string{
		`"resourceVersion":"7","annotations":{` + end + `}`, `"annotations":{` + end + `},"resourceVersion":"7"`,
		`"resourceVersion":"7","annotations":{"a":"0",` + end + `}`, `"resourceVersion":"7","annotations":{` + end + `,"z":"0"}`,
		`"annotations":{` + end + `,"z":"0"},"resourceVersion":"7"`, `"resourceVersion":"7","creationTimestamp":null,"annotations":{` + end + `}`,
		`"a":1,"annotations":{` + end + `},"resourceVersion":"7","z":1`,
	} {
		seed("BOOKMARK", `"kind":"K","metadata":{`+metadata+`},"spec":{}`)
	}
	seed("ADDED", `"metadata":{"name":"x","resourceVersion":"7"},"x":`+nestedJSON(`[{"a":`, "1", "}]", 100))
	f.Add([]byte(`{"object":{"metadata":{"labels":{"a":"\u0026"},"resourceVersion":"007","namespace":"n","name":"x"},`+
		`"spec":{"nodeName":"n1","hostNetwork":true},"status":{"podIPs":[{"ip":1.50}],"podIP":"1"}},"type":"DELETED"}`), uint64(1))
	s, known := framing.NewScanner(framing.JSON, manyFields), framing.NewKnownScanner(framing.JSON, manyFields)
	f.Fuzz(func(t *testing.T, line []byte, rv uint64) {
		ev, err := s.Event(line)
		if err == nil {
			if again, err := known.Event(line); err != nil || !reflect.DeepEqual(again, ev) {
				t.Fatalf("again: %+v, %v\nwant %+v", again, err, ev)
			}
		}
		if errors.Is(err, framing.ErrReplaced) {
			return
		}
		if _, ok := jsonTwin(line); ordinary(line) && ok != (err == nil) {
			t.Fatalf("error %v, but the twin says ok=%v", err, ok)
		}
		compact := jsontext.Value(line).Clone()
		// No encoder writes spaces, names with escapes, or names twice; with them, only a panic is an error.
		if ordinary(line) && compact.Compact() == nil && (len(compact)+1 >= len(line) || ev.Type != framing.Bookmark) && err == nil {
			checkTwin(t, framing.JSON, s, line, ev, rv, jsonTwin)
			return
		}
		for end, has := range map[bool]bool{false: ev.Type == framing.Bookmark, true: ev.Form.HasEnd()} {
			if has {
				ev.Form.Frame(rv, end)
			}
		}
		if ev.Object != nil {
			ev.Object.Left(1)
			ev.Object.Deleted(1).As(framing.Modified)
		}
	})
}
