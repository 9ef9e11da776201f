package framing_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/framing"
)

// leanJSON returns a JSON object without metadata.managedFields, member by member.
func leanJSON(t testing.TB, object []byte) []byte {
	t.Helper()
	return rewritten(t, object, func(name string, value []byte) ([]byte, bool) {
		if name != `"metadata"` {
			return value, true
		}
		return rewritten(t, value, func(name string, value []byte) ([]byte, bool) {
			var unquoted string
			if err := json.Unmarshal([]byte(name), &unquoted); err != nil {
				t.Fatal(err)
			}
			return value, unquoted != "managedFields"
		}), true
	})
}

// rewritten returns a JSON object with the values that f returns for its members, as they are
// written, and without those for which f reports false.
func rewritten(t testing.TB, object []byte, f func(name string, value []byte) ([]byte, bool)) []byte {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(object),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	read := func(v jsontext.Value, err error) []byte {
		if err != nil {
			t.Fatalf("%v\nin %.300q", err, object)
		}
		return bytes.Clone(v)
	}
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		t.Fatalf("no object: %.300q", object)
	}
	var members [][]byte
	for dec.PeekKind() != '}' {
		name := read(dec.ReadValue())
		if value, ok := f(string(name), read(dec.ReadValue())); ok {
			members = append(members, slices.Concat(name, []byte(":"), value))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// leanMessage returns an object in protobuf without its type and without managedFields.
func leanMessage(t testing.TB, raw []byte) []byte {
	t.Helper()
	_, _, n := protowire.ConsumeField(raw)
	var o metav1.PartialObjectMetadata
	if n < 0 || o.Unmarshal(raw[:n]) != nil {
		t.Fatalf("no object: %.300q", raw)
	}
	o.ManagedFields = nil
	metadata, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(metadata, raw[n:]...)
}

// leanUnknown returns an object or a list in protobuf without managedFields.
func leanUnknown(t testing.TB, object []byte, list bool) []byte {
	t.Helper()
	var u runtime.Unknown
	if err := u.Unmarshal(bytes.TrimPrefix(object, []byte("k8s\x00"))); err != nil {
		t.Fatal(err)
	}
	if list {
		_, _, n := protowire.ConsumeField(u.Raw) // ListMeta
		raw := bytes.Clone(u.Raw[:n])
		for rest := u.Raw[n:]; len(rest) > 0; rest = rest[n:] {
			_, _, n = protowire.ConsumeField(rest)
			_, _, tag := protowire.ConsumeTag(rest)
			item, _ := protowire.ConsumeBytes(rest[tag:])
			raw = append(raw, message(2, leanMessage(t, item))...)
		}
		u.Raw = raw
	} else {
		u.Raw = leanMessage(t, u.Raw)
	}
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// leanMap returns a decoded object without managedFields.
func leanMap(object any) any {
	if metadata, ok := object.(map[string]any)["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	return object
}

// sameLean reports whether got is the object, the event or the list whole without managedFields, as
// kube-apiserver would write it. of is what whole is. CBOR has its entries in any order.
func sameLean(t testing.TB, e framing.Encoding, of string, got, whole []byte) bool {
	t.Helper()
	switch {
	case e == framing.CBOR:
		want := decodeCBOR(t, whole)
		members := want.(map[string]any)
		switch of {
		case "object":
			leanMap(members)
		case "event":
			leanMap(members["object"])
		default:
			items, _ := members["items"].([]any)
			for _, item := range items {
				leanMap(item)
			}
		}
		return bytes.HasPrefix(got, []byte(selfDescribed)) && reflect.DeepEqual(decodeCBOR(t, got), want)
	case e == framing.Protobuf && of == "event":
		ev := decodeEvent(t, whole)
		return bytes.Equal(got, encodeEvent(t, ev.Type, leanUnknown(t, ev.Object.Raw, false)))
	case e == framing.Protobuf:
		return bytes.Equal(got, leanUnknown(t, whole, of == "list"))
	}
	var want []byte
	switch of {
	case "object":
		want = leanJSON(t, whole)
	case "event":
		want = rewritten(t, whole, func(name string, value []byte) ([]byte, bool) {
			if name == `"object"` {
				value = leanJSON(t, value)
			}
			return value, true
		})
	default:
		want = rewritten(t, whole, func(name string, value []byte) ([]byte, bool) {
			var raw []json.RawMessage
			if name != `"items"` || json.Unmarshal(value, &raw) != nil || raw == nil {
				return value, true
			}
			var items [][]byte
			for _, item := range raw {
				items = append(items, leanJSON(t, item))
			}
			return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]")), true
		})
	}
	if whole[len(whole)-1] == '\n' {
		want = append(want, '\n')
	}
	return bytes.Equal(got, want)
}

// checkLean compares the lean forms of an object with the whole ones, and with what a scanner reads
// in them.
func checkLean(t testing.TB, c captured, form framing.ListForm, o *framing.Object) {
	t.Helper()
	same := func(what, of string, got, whole []byte) {
		t.Helper()
		if !sameLean(t, c.encoding, of, got, whole) {
			t.Errorf("%s:\n got %q\nof %q", what, got, whole)
		}
	}
	same("object", "object", bytes.Join(o.AppendTrimmed(nil, framing.Lean), nil), o.Bytes())
	const rv = 12345678901234567
	for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
		same(typ.String(), "event", payload(t, o.TrimmedFrame(framing.Lean, typ)), payload(t, o.Frame(typ)))
		as := o.As(typ)
		same("made to be "+typ.String(), "event", payload(t, as.TrimmedFrame(framing.Lean, typ)), payload(t, o.Frame(typ)))
		if a, b := as.TrimmedFrame(framing.Lean, typ), as.TrimmedFrame(framing.Lean, typ); a.Start() != b.Start() {
			t.Errorf("lean %s is not shared", typ)
		}
	}
	same("left", "event", payload(t, o.TrimmedLeft(framing.Lean, rv)), payload(t, o.Left(rv)))
	same("deleted", "event", payload(t, o.Deleted(rv).TrimmedFrame(framing.Lean, framing.Deleted)), payload(t, o.Left(rv)))
	same("left later", "event", payload(t, o.Deleted(1).TrimmedLeft(framing.Lean, rv)), payload(t, o.Left(rv)))
	if a, b := o.TrimmedFrame(framing.Lean, framing.Added), o.TrimmedFrame(framing.Lean, framing.Added); a.Start() != b.Start() {
		t.Error("lean ADDED is not shared")
	}

	lean := c.scan(t, payload(t, o.TrimmedFrame(framing.Lean, framing.Added))).Object
	if lean.Key != o.Key || lean.ResourceVersion != o.ResourceVersion || lean.UID() != o.UID() {
		t.Errorf("lean object reads as %+v, want %+v", lean, o)
	}
	if lean.TrimmedFrame(framing.Lean, framing.Added).Start() != lean.Frame(framing.Added).Start() {
		t.Error("an object without managedFields has a lean frame of its own")
	}
	for _, first := range []bool{true, false} {
		open, item := form.Item(lean, first)
		got := bytes.Join(form.AppendTrimmedItem(nil, framing.Lean, o, first), nil)
		if want := open + string(item); string(got) != want {
			t.Errorf("item %q\nwant %q", got, want)
		}
	}
}

// In every representation, lean events and lists are what kube-apiserver wrote without
// managedFields.
func TestGoldenLean(t *testing.T) {
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			form := c.form(t)
			shorter := 0
			for _, o := range c.objects(t) {
				checkLean(t, c, form, o)
				if o.TrimmedFrame(framing.Lean, framing.Added).Len() < o.Frame(framing.Added).Len() {
					shorter++
				}
			}
			if shorter == 0 {
				t.Error("no captured object has managedFields")
			}
			for _, section := range []string{"list", "page"} {
				body := c.bytes(section)
				if len(body) == 0 {
					continue
				}
				objects, meta := c.readList(t, form, body)
				for _, o := range objects {
					checkLean(t, c, form, o)
				}
				got := assembleTrimmed(form, meta, objects, framing.Lean)
				if !sameLean(t, c.encoding, "list", got, body) {
					t.Errorf("%s %q\nof %q", section, got, body)
				}
			}
		})
	}
}

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
		leanMap(want["object"])
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

// fuzzLean is a fuzz target's body: scanned objects have the lean form of their twin, and read as
// before.
func fuzzLean(t *testing.T, c captured, form framing.ListForm, event []byte) (o *framing.Object, lean []byte) {
	ev, err := framing.NewScanner(c.encoding, podFields).Event(event)
	if err != nil || ev.Object == nil {
		return nil, nil
	}
	o, lean = ev.Object, payload(t, ev.Object.TrimmedFrame(framing.Lean, ev.Type))
	read := lean
	if c.encoding == framing.Protobuf {
		read = read[4:]
	}
	again, err := framing.NewScanner(c.encoding, podFields).Event(read)
	if err != nil {
		t.Fatalf("%v\nin lean %q", err, lean)
	}
	l := again.Object
	if again.Type != ev.Type || l.Key != o.Key || l.ResourceVersion != o.ResourceVersion ||
		!reflect.DeepEqual(l.Labels, o.Labels) || !slices.Equal(l.Fields, o.Fields) || l.UID() != o.UID() {
		t.Fatalf("lean object reads as %+v, want %+v", l, o)
	}
	if l.TrimmedFrame(framing.Lean, ev.Type).Start() != l.Frame(ev.Type).Start() {
		t.Fatalf("there are managedFields in %q", lean)
	}
	if got := bytes.Join(o.AppendTrimmed(nil, framing.Lean), nil); !bytes.Equal(got, l.Bytes()) {
		t.Fatalf("object %q\nwant %q", got, l.Bytes())
	}
	open, item := form.Item(l, true)
	if got := bytes.Join(form.AppendTrimmedItem(nil, framing.Lean, o, true), nil); string(got) != open+string(item) {
		t.Fatalf("item %q\nwant %q", got, open+string(item))
	}
	if got, want := payload(t, o.TrimmedLeft(framing.Lean, 77)), payload(t, l.Left(77)); !bytes.Equal(got, want) {
		t.Fatalf("left as %q\nwant %q", got, want)
	}
	return o, lean
}

// seedLean adds the captured events of representations as seeds, without length prefixes.
func seedLean(f *testing.F, captures ...[]captured) {
	for _, c := range slices.Concat(captures...) {
		for i, event := range c.events("all") {
			if i < 3 {
				event, err := framing.NewEventReader(c.encoding, bytes.NewReader(event)).Next()
				if err != nil {
					f.Fatal(err)
				}
				f.Add(bytes.Clone(event))
			}
		}
	}
}

// FuzzLeanJSON compares with a rewriting of the object, member by member.
func FuzzLeanJSON(f *testing.F) {
	seedLean(f, asJSON.captured(f), asMetadata.captured(f))
	for _, metadata := range []string{`{"name":"x", "managed\u0046ields" : [ ] ,"resourceVersion":"7"}`,
		`{"managedFields":{}},"metadata":{"name":"x","resourceVersion":"7"}`} {
		f.Add([]byte(`{"type":"ADDED","object":{"metadata":` + metadata + `}}`))
	}
	form, _, err := framing.ParseListForm(framing.JSON,
		[]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		o, lean := fuzzLean(t, captured{representation: asJSON}, form, line)
		if o == nil {
			return
		}
		var got, want bytes.Buffer
		var ev struct{ Object json.RawMessage }
		if err := json.Unmarshal(lean, &ev); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&got, ev.Object); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&want, leanJSON(t, o.Bytes())); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Fatalf("got %q\nwant %q", got.String(), want.String())
		}
	})
}

// FuzzLeanProtobuf compares with apimachinery's types.
func FuzzLeanProtobuf(f *testing.F) {
	seedLean(f, asProtobuf.captured(f), asProtobufMetadata.captured(f))
	name, rv, managed := text(1, "x"), text(6, "7"), message(17, text(1, strings.Repeat("m", 200)))
	f.Add(protobufEvent(f, "ADDED", message(1, name, managed, managed, rv), message(2, text(10, "n1"))))
	f.Add(protobufEvent(f, "DELETED", message(1, managed, name, managed, rv)))
	form := asProtobuf.captured(f)[0].form(f)
	f.Fuzz(func(t *testing.T, event []byte) {
		o, lean := fuzzLean(t, captured{representation: asProtobuf}, form, event)
		if o == nil {
			return
		}
		if tw, ok := protobufTwinOf(event); ok && tw.canonical {
			ev := decodeEvent(t, append(make([]byte, 4), event...))
			if want := encodeEvent(t, ev.Type, leanUnknown(t, ev.Object.Raw, false)); !bytes.Equal(lean, want) {
				t.Fatalf("got %q\nwant %q", lean, want)
			}
		}
	})
}

// FuzzLeanCBOR compares with another decoder.
func FuzzLeanCBOR(f *testing.F) {
	seedLean(f, asCBOR.captured(f), asCBORMetadata.captured(f))
	f.Add(cborEvent("ADDED", cborPod("metadata",
		cborMap("managedFields", []any{1}, "name", "x", "resourceVersion", "7"))))
	form := asCBOR.captured(f)[0].form(f)
	f.Fuzz(func(t *testing.T, event []byte) {
		o, lean := fuzzLean(t, captured{representation: asCBOR}, form, event)
		var want, got cborTwin
		if o == nil || asKubernetes.Unmarshal(event, &want) != nil {
			return
		}
		if err := asKubernetes.Unmarshal(lean, &got); err != nil {
			t.Fatal(err)
		}
		delete(want.metadata(), "managedFields")
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}
