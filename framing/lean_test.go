package framing_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// managedFields may be anywhere in the metadata, in any white space.
func TestLeanJSON(t *testing.T) {
	f := func(object, want string) {
		t.Helper()
		for _, kind := range []string{"ADDED", "MODIFIED"} {
			o := scan(t, []byte(`{"type":"`+kind+`","object":`+object+"}\n")).Object
			checkFrame(t, kind, o.TrimmedFrame(framing.Lean, framing.Added), []byte(`{"type":"ADDED","object":`+want+"}\n"))
		}
		o, err := framing.NewScanner(framing.JSON, nil).Item([]byte(object), []byte(`"kind":"Pod","apiVersion":"v1",`))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(object, `"kind"`) {
			want = `{"kind":"Pod","apiVersion":"v1",` + want[1:]
		}
		checkFrame(t, "item", o.TrimmedFrame(framing.Lean, framing.Added), []byte(`{"type":"ADDED","object":`+want+"}\n"))
	}
	f(`{"metadata":{"name":"x","resourceVersion":"7","managedFields":[{"a":{}}]}}`,
		`{"metadata":{"name":"x","resourceVersion":"7"}}`)
	f(`{"metadata":{"managedFields":[],"name":"x","resourceVersion":"7"},"spec":{}}`,
		`{"metadata":{"name":"x","resourceVersion":"7"},"spec":{}}`)
	f(`{"a":1,"metadata":{"name":"x","managedFields":[],"resourceVersion":"7"},"kind":"K"}`,
		`{"a":1,"metadata":{"name":"x","resourceVersion":"7"},"kind":"K"}`)
	f(`{"metadata":{"name":"x","resourceVersion":"7","managedFields":null}}`,
		`{"metadata":{"name":"x","resourceVersion":"7"}}`)
	f(`{"metadata":{"name":"x","resourceVersion":"7","managed\u0046ields":["]}",{}]}}`,
		`{"metadata":{"name":"x","resourceVersion":"7"}}`)
	f("{\"metadata\": {\"name\":\"x\" ,\t\"managedFields\" : [ ] , \"resourceVersion\":\"7\"} }",
		"{\"metadata\": {\"name\":\"x\" ,\t \"resourceVersion\":\"7\"} }")
	f("{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\"\r\n,\n\"managedFields\":[]\n}}",
		"{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\"\r\n\n}}")
	for _, same := range []string{
		`{"metadata":{"name":"x","resourceVersion":"7"}}`,
		`{"managedFields":[],"metadata":{"name":"x","resourceVersion":"7","labels":{"managedFields":"1"},` +
			`"annotations":{"managedFields":"[]"}},"spec":{"metadata":{"managedFields":[]}}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","ManagedFields":[],"managedfields":[]}}`,
	} {
		f(same, same)
	}
	for _, twice := range []string{
		`{"metadata":{"managedFields":[],"name":"x","resourceVersion":"7","managedFields":[]}}`,
		`{"metadata":{"managedFields":[],"name":"x"},"metadata":{"resourceVersion":"7","managedFields":[]}}`,
	} {
		_, err := framing.NewScanner(framing.JSON, nil).Event([]byte(`{"type":"ADDED","object":` + twice + "}\n"))
		if err == nil || !strings.Contains(err.Error(), "managedFields") {
			t.Errorf("%s: %v", twice, err)
		}
	}
}

// managedFields may be in the middle of a metadata, but only in one place.
func TestLeanProtobuf(t *testing.T) {
	name, rv, long := text(1, "x"), text(6, "7"), text(17, strings.Repeat("m", 200))
	rest := message(2, text(10, "n1"))
	bare := scanProtobuf(t, protobufEvent(t, "ADDED", message(1, name, rv), rest)).Object
	want := payload(t, bare.Frame(framing.Added))
	for _, metadata := range [][]byte{
		message(1, name, rv, long), message(1, name, long, long, rv), message(1, long, text(17, ""), name, rv),
	} {
		o := scanProtobuf(t, protobufEvent(t, "ADDED", metadata, rest)).Object
		checkFrame(t, "lean", o.TrimmedFrame(framing.Lean, framing.Added), want)
	}
	for _, metadata := range [][]byte{
		message(1, long, name, long, rv), message(1, name, rv, varint(17, 1)),
	} {
		if _, err := framing.NewScanner(framing.Protobuf, nil).Event(protobufEvent(t, "ADDED", metadata)); err == nil {
			t.Errorf("%q is read", metadata)
		}
	}
}

// The number of a map's entries may take a byte less without managedFields.
func TestLeanCBOR(t *testing.T) {
	for _, n := range []int{0, 20, 21, 22, 300} {
		metadata := map[string]any{"name": "x", "resourceVersion": "7", "managedFields": []any{map[string]any{"a": 1}}}
		for i := range n {
			metadata[strings.Repeat("k", i+1)] = i
		}
		event := cborEvent("ADDED", cborPod("metadata", metadata, "spec", map[string]any{"nodeName": "n"}))
		o := scanCBOR(t, event).Object
		got, want := decodeCBOR(t, payload(t, o.TrimmedFrame(framing.Lean, framing.Added))), decodeCBOR(t, event).(map[string]any)
		trimmedMap(want["object"].(map[string]any), managedFieldsPath)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with %d entries more: got %v, want %v", n, got, want)
		}
	}
	twice := cborEvent("ADDED", cborPod("metadata", cborMap("name", "x", "resourceVersion", "7",
		"managedFields", []any{}, "managedFields", []any{})))
	if _, err := framing.NewScanner(framing.CBOR, nil).Event(twice); err == nil {
		t.Error("two managedFields are read")
	}
}

// A lean frame that was asked for before costs nothing, and shares the object's bytes.
func TestLeanFrameShares(t *testing.T) {
	for _, line := range readTestdata(t)[1].events("all") {
		ev := scan(t, line)
		o := ev.Object
		for _, typ := range []framing.EventType{framing.Added, ev.Type} {
			whole, lean := o.Frame(typ), o.TrimmedFrame(framing.Lean, typ)
			if &lean.Body[len(lean.Body)-1] != &whole.Body[len(whole.Body)-1] || cap(lean.Head) != len(lean.Head) ||
				cap(lean.Body) != len(lean.Body) {
				t.Errorf("%s as %s: not the whole object's bytes", ev.Type, typ)
			}
			if n := testing.AllocsPerRun(10, func() { o.TrimmedFrame(framing.Lean, typ) }); n != 0 {
				t.Errorf("%s as %s: %v allocations, want 0", ev.Type, typ, n)
			}
		}
	}
}
