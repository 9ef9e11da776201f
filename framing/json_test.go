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

	"github.com/watchfan/watchfan/framing"
)

// A CustomResourceDefinition may make kind and apiVersion selectable.
func TestScannerTypeFields(t *testing.T) {
	fields := []framing.Field{
		{Label: "kind", Paths: [][]string{{"kind"}}}, {Label: "apiVersion", Paths: [][]string{{"apiVersion"}}},
	}
	for e, event := range map[framing.Encoding][]byte{
		framing.JSON: []byte(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","resourceVersion":"7"}}}`),
		framing.CBOR: cborEvent("ADDED", cborPod("metadata", cborMap("name", "x", "resourceVersion", "7"))),
	} {
		ev, err := framing.NewScanner(e, fields).Event(event)
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		if got, want := ev.Object.Fields, []string{"Pod", "v1"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", e, got, want)
		}
	}
}

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

// The twin: encoding/json, maps and reflection.
type twin struct {
	typ             string
	object          json.RawMessage
	namespace, name string
	uid             string // "" if it is not a string
	rv              uint64
	labels          map[string]string
	end             bool
	fields          []string
}

var decimal = regexp.MustCompile(`^"[0-9]+"$`)

func twinOf(line []byte, fields []framing.Field) (tw twin, ok bool) {
	var ev, object, metadata map[string]json.RawMessage
	if json.Unmarshal(line, &ev) != nil || ev == nil || json.Unmarshal(ev["type"], &tw.typ) != nil {
		return tw, false
	}
	if tw.object = ev["object"]; json.Unmarshal(tw.object, &object) != nil || object == nil {
		return tw, false
	}
	if raw, ok := object["metadata"]; ok && (json.Unmarshal(raw, &metadata) != nil || metadata == nil) {
		return tw, false
	}
	member := func(name string, v any) bool {
		raw, ok := metadata[name]
		return !ok || json.Unmarshal(raw, v) == nil
	}
	var annotations map[string]json.RawMessage
	if !member("namespace", &tw.namespace) || !member("name", &tw.name) || !member("labels", &tw.labels) ||
		!member("annotations", &annotations) {
		return tw, false
	}
	_ = json.Unmarshal(metadata["uid"], &tw.uid)
	tw.end = string(annotations[framing.InitialEventsEnd]) == `"true"`
	if raw, ok := metadata["resourceVersion"]; ok {
		if !decimal.Match(raw) {
			return tw, false
		}
		tw.rv, _ = strconv.ParseUint(string(raw[1:len(raw)-1]), 10, 64)
		if tw.rv == 0 {
			return tw, false
		}
	}
	dec := json.NewDecoder(bytes.NewReader(tw.object))
	dec.UseNumber()
	var tree any
	if dec.Decode(&tree) != nil {
		return tw, false
	}
	for _, f := range fields {
		tw.fields = append(tw.fields, valueOf(tree, f))
	}
	return tw, true
}

// escapedName finds a member name that is written with an escape, which no encoder does.
var escapedName = regexp.MustCompile(`\\(?:[^"\\]|\\.)*"\s*:`)

// ordinary reports whether a line is JSON as typed objects are encoded: UTF-8, and no name twice or
// with escapes.
func ordinary(line []byte) bool {
	return jsontext.Value(line).IsValid() && !escapedName.Match(line)
}

func FuzzEvent(f *testing.F) {
	for _, c := range readTestdata(f) {
		for _, section := range []string{"all", "initial", "bookmark", "expired"} {
			for i, line := range c.events(section) {
				if i < 3 {
					f.Add(line)
				}
			}
		}
	}
	for _, metadata := range []string{
		`"name":"x"`, `"name":"x","namespace":"a"`, `"namespace":"a","name":"a"`, `"name":"x","labels":{}`, `"name":"x","labels":null`,
		`"name":"x","labels":{"a":"1","b":"","c":null}`, `"name":"\u0078\"","labels":{"a":"\u0026"}`,
		`"ownerReferences":[{"name":"other","resourceVersion":"1"}],"name":"x"`,
		`"name":"x","uid":null`, `"name":"x","uid":"u"`, `"name":"x","uid":"\u0075\n"`,
	} {
		f.Add([]byte(`{"type":"ADDED","object":{"metadata":{` + metadata + `,"resourceVersion":"7"}}}`))
	}
	for _, members := range []string{
		`"spec":{"nodeName":"n1","hostNetwork":true}`, `"spec":{"nodeName":null,"hostNetwork":null}`, `"spec":null,"status":[1]`,
		`"spec":{"nodeName":{"a":1},"restartPolicy":["x"]}`, `"status":{"podIP":"1","podIPs":[{"ip":"2"},{"ip":"3"}]}`,
		`"status":{"podIPs":[{"ip":""},{"ip":"3"}],"podIP":"1"}`, `"status":{"podIPs":[],"podIP":"1","phase":"a\u002fb"}`,
		`"x":[[{"z":1,"y":12.50},{"y":2}],[{"y":3}]]`, `"spec":{"type":"inner"},"type":"Opaque"`,
		`"spec":{"nodeName":"other","hostNetwork":true,"restartPolicy":"r"},"status":{"phase":"p","podIP":"i"},"type":"T","x":[[{"y":9}]]`,
	} {
		f.Add([]byte(`{"type":"ADDED","object":{` + members + `,"metadata":{"name":"n","resourceVersion":"7"}}}`))
	}
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"7"},"x":` +
		nestedJSON(`[{"a":`, "1", "}]", 100) + `}}`))
	f.Add([]byte(`{"object":{"metadata":{"labels":{"a":"\u0026"},"resourceVersion":"007","namespace":"n","name":"x"},` +
		`"spec":{"nodeName":"n1","hostNetwork":true},"status":{"podIPs":[{"ip":1.50}],"podIP":"1"}},"type":"DELETED"}`))
	fields := append(slices.Clone(podFields),
		framing.Field{Label: "none", Default: "d"},
		framing.Field{Label: "deep", Paths: [][]string{{"x", "[0]", "[0]", "y"}}, Default: "0"},
		framing.Field{Label: "type", Paths: [][]string{{"type"}}})
	s := framing.NewScanner(framing.JSON, fields)
	f.Fuzz(func(t *testing.T, line []byte) {
		ev, err := s.Event(line)
		if !ordinary(line) {
			if err == nil && ev.Object != nil {
				ev.Object.Left(1)
				ev.Object.Deleted(1).As(framing.Modified)
			}
			return
		}
		tw, ok := twinOf(line, fields)
		ok = ok && slices.Contains([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}, tw.typ)
		switch tw.typ {
		case "BOOKMARK":
			ok = ok && tw.rv != 0
		case "ERROR":
			ok = ok && json.Unmarshal(tw.object, &framing.Status{}) == nil
		default:
			ok = ok && tw.rv != 0 && tw.name != ""
		}
		if ok != (err == nil) {
			t.Fatalf("error %v, but the twin says ok=%v", err, ok)
		}
		if !ok {
			return
		}
		if ev.Type.String() != tw.typ || tw.typ != "ERROR" && ev.ResourceVersion != tw.rv ||
			ev.Type == framing.Bookmark && ev.InitialEventsEnd != tw.end {
			t.Fatalf("read %+v, want %+v", ev, tw)
		}
		if o := ev.Object; o != nil {
			checkObject(t, o, tw, fields)
		}
	})
}

func checkObject(t *testing.T, o *framing.Object, want twin, fields []framing.Field) {
	key := want.name
	if want.namespace != "" {
		key = want.namespace + "/" + want.name
	}
	if o.Key != key || o.Namespace != want.namespace || o.Name != want.name || o.ResourceVersion != want.rv ||
		o.UIDHash() != framing.HashOf(want.uid) || !maps.Equal(o.Labels, want.labels) || !slices.Equal(o.Fields, want.fields) ||
		!bytes.Equal(o.Bytes(), want.object) {
		t.Fatalf("read %+v\nwant %+v", o, want)
	}
	for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
		line := `{"type":"` + typ.String() + `","object":` + string(want.object) + "}\n"
		checkFrame(t, typ.String(), o.Frame(typ), []byte(line))
	}
	const rv = 12345678901234567
	for _, f := range []framing.Frame{o.Left(rv), o.Deleted(rv).Frame(framing.Deleted), o.Deleted(1).Left(rv)} {
		left, ok := twinOf(payload(t, f), fields)
		if !ok || left.typ != "DELETED" || left.rv != rv {
			t.Fatalf("left as %+v", left)
		}
		left.typ, left.rv, left.object = want.typ, want.rv, want.object
		if !reflect.DeepEqual(left, want) {
			t.Fatalf("left as %+v, want %+v", left, want)
		}
	}
}
