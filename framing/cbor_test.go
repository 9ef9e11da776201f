package framing_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/watchfan/watchfan/framing"
)

// asKubernetes decodes CBOR as clients of Kubernetes do
// (k8s.io/apimachinery/pkg/runtime/serializer/cbor).
var asKubernetes = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey:             cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:       10000,
		ByteStringToString:    cbor.ByteStringToStringAllowedWithExpectedLaterEncoding,
		FieldNameByteString:   cbor.FieldNameByteStringAllowed,
		FieldNameMatching:     cbor.FieldNameMatchingCaseSensitive,
		DefaultByteStringType: reflect.TypeFor[string](),
		DefaultMapType:        reflect.TypeFor[map[string]any](),
		UnrecognizedTagToAny:  cbor.UnrecognizedTagContentToAny,
		IntDec:                cbor.IntDecConvertSignedOrFail,
		NaN:                   cbor.NaNDecodeForbidden,
		Inf:                   cbor.InfDecodeForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

func decodeCBOR(t testing.TB, item []byte) any {
	t.Helper()
	var v any
	if err := asKubernetes.Unmarshal(item, &v); err != nil {
		t.Fatalf("%v\nin %.300x", err, item)
	}
	return v
}

// sameBytes reports whether two events, objects or lists are the same. kube-apiserver writes the
// entries of CBOR maps in any order, so in CBOR it reports whether they are the same to clients.
func sameBytes(t testing.TB, a, b []byte) bool {
	t.Helper()
	if !bytes.HasPrefix(b, []byte(selfDescribed)) {
		return bytes.Equal(a, b)
	}
	return bytes.HasPrefix(a, []byte(selfDescribed)) && len(a) == len(b) &&
		reflect.DeepEqual(decodeCBOR(t, a), decodeCBOR(t, b))
}

const selfDescribed = "\xd9\xd9\xf7"

type rawCBOREvent struct {
	Type   string          `json:"type"`
	Object cbor.RawMessage `json:"object"`
}

func readCBOREvent(t testing.TB, event []byte) (ev rawCBOREvent) {
	t.Helper()
	if err := asKubernetes.Unmarshal(event, &ev); err != nil {
		t.Fatal(err)
	}
	ev.Object = tagged(ev.Object) // the decoder drops that tag
	return ev
}

// cborMap is a map of these names and values, in this order.
func cborMap(entries ...any) cbor.RawMessage {
	m := []byte{0xa0 | byte(len(entries)/2)}
	for _, e := range entries {
		m = append(m, encodeCBOR(e)...)
	}
	return m
}

// encodeCBOR writes strings as kube-apiserver does.
func encodeCBOR(v any) []byte {
	b, err := cborStrings.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

var cborStrings, _ = cbor.EncOptions{String: cbor.StringToByteString, Sort: cbor.SortBytewiseLexical}.EncMode()

func tagged(item []byte) []byte { return append([]byte(selfDescribed), item...) }

func cborEvent(typ string, object []byte) []byte {
	return tagged(cborMap("type", typ, "object", cbor.RawMessage(object)))
}

// cborPod is an object with these entries besides its type.
func cborPod(entries ...any) []byte {
	return tagged(cborMap(append([]any{"kind", "Pod", "apiVersion", "v1"}, entries...)...))
}

func scanCBOR(t testing.TB, event []byte) framing.Event { return scanAs(t, framing.CBOR, event) }

// The frame that the package comment draws.
func TestCBORFrame(t *testing.T) {
	o := scanCBOR(t,
		cborEvent("ADDED",
			tagged(cborMap("metadata", cborMap("name", "x", "resourceVersion", "7"), "kind", "Pod",
				"apiVersion", "v1")))).Object
	want := "54\r\n\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7\xa3\x44kind\x43Pod\x4aapiVersion\x42v1" +
		"\x48metadata\xa2\x44name\x41x\x4fresourceVersion\x417\r\n"
	if f := o.Frame(framing.Added); string(f.Head)+string(f.Body) != want {
		t.Errorf("frame %q\nwant %q", f, want)
	}
}

func TestCBOREventErrors(t *testing.T) {
	f := eventErrors[[]byte](t, framing.CBOR)
	metadata := cborMap("name", "x", "resourceVersion", "7")
	whole := cborEvent("ADDED", cborPod("metadata", metadata))
	for n := range whole {
		f(whole[:n], "byte ")
	}
	f(append(whole, 0), "data after the value")
	f(whole[3:], "found major type 5, expected 6")
	f(tagged(encodeCBOR("ADDED")), "found major type 2, expected 5")
	f(append([]byte{0xc1}, whole[3:]...), "tag 1, expected 55799")
	f(cborEvent("ADDED", cborMap("metadata", metadata)), "found major type 5, expected 6")
	f(tagged(cborMap("type", "ADDED")), "no object")
	f(tagged(cborMap("object", cbor.RawMessage(cborPod("metadata", metadata)))), `unknown type ""`)
	f(cborEvent("CHANGED", cborPod("metadata", metadata)), `unknown type "CHANGED"`)
	f(tagged(cborMap("type", 1)), "found major type 0, expected 2")
	f(tagged(cborMap(1, 1)), "found major type 0, expected 2")
	f([]byte(selfDescribed+"\xbf\xff"), "indefinite length")
	f([]byte(selfDescribed+"\xa1\x5f\xff"), "indefinite length")
	f([]byte(selfDescribed+"\xbc"), "head bc")
	f([]byte(selfDescribed+"\xa1\x5b\xff\xff\xff\xff\xff\xff\xff\xff"), "unexpected EOF")
	f([]byte(selfDescribed+"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"), "unexpected EOF")
	f([]byte(selfDescribed+"\xa1\x41x\x9b\xff\xff\xff\xff\xff\xff\xff\xff"), "16 MiB")
	f([]byte(selfDescribed+"\xa1\x41x\x7b\xff\xff\xff\xff\xff\xff\xff\xff"), "16 MiB")
	f([]byte(selfDescribed+"\xa1\x41x"+strings.Repeat("\x9a\x00\x90\x00\x00", 2)), "16 MiB")

	f(cborEvent("ADDED", cborPod()), "ADDED: object without metadata.name")
	f(cborEvent("ADDED", cborPod("metadata", nil)), "ADDED: object without metadata.name")
	f(cborEvent("ADDED", cborPod("metadata", "x")), "found major type 2, expected 5")
	f(cborEvent("ADDED", cborPod("metadata", cborMap("name", "x"))), "ADDED: object without metadata.resourceVersion")
	f(cborEvent("ADDED", cborPod("metadata", metadata, "metadata", metadata)), "found for a second time")
	f(cborEvent("ADDED", cborPod("metadata", cborMap("name", "x", "resourceVersion", "7", "labels", cborMap("a", 1)))),
		"found major type 0, expected 2")
	f(cborEvent("ADDED", tagged(cborMap("kind", "Pod", "metadata", metadata))),
		"ADDED: object without kind or apiVersion")
	f(cborEvent("ADDED", cborPod("metadata", metadata, "kind", "Pod")),
		"ADDED: object without kind or apiVersion, or with two")
	f(cborEvent("BOOKMARK", cborPod("metadata", cborMap())), "BOOKMARK without resourceVersion")
	for _, rv := range []any{"", "0", "-5", "x", "18446744073709551616", strings.Repeat("0", 22) + "7",
		cbor.RawMessage("\x58\x017"), cbor.RawMessage("\x617")} {
		f(cborEvent("ADDED", cborPod("metadata", cborMap("name", "x", "resourceVersion", rv))), `: resourceVersion "`)
	}
	f(cborEvent("ADDED", cborPod("metadata", cborMap("resourceVersion", "7", "resourceVersion", "8"))),
		"found for a second time")
	f(cborEvent("ADDED", cborPod("metadata", cborMap("managedFields", []any{}, "managedFields", []any{}))), "managedFields: found for a second time")
	mark := cborMap(framing.InitialEventsEnd, "true", framing.InitialEventsEnd, "true")
	f(cborEvent("BOOKMARK", cborPod("metadata", cborMap("resourceVersion", "7", "annotations", mark))),
		"found for a second time")
	f(cborEvent("BOOKMARK",
		cborPod("metadata", cborMap("resourceVersion", "7", "annotations", nil, "annotations", nil))),
		"found for a second time")
	f(cborEvent("ERROR", tagged(cborMap("code", "410"))), "ERROR: cbor: cannot unmarshal")
}

// FuzzCBORReader compares the reader's items with those of another decoder.
func FuzzCBORReader(f *testing.F) {
	for _, c := range asCBOR.captured(f) {
		f.Add(c.bytes("empty"))
		f.Add(c.events("all")[0])
	}
	f.Add(append(bytes.Repeat([]byte{0x81, 0xa1, 0x00, 0xc1}, 100), 0))
	f.Add([]byte{0x82, 0xc0, 0x61, 'x', 0xfb, 0, 0, 0, 0, 0, 0, 0, 0})
	definite, err := cbor.DecOptions{IndefLength: cbor.IndefLengthForbidden, MaxNestedLevels: 65535,
		MaxArrayElements: 1 << 30, MaxMapPairs: 1 << 30}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var want cbor.RawMessage
		_, wantErr := definite.UnmarshalFirst(stream, &want)
		item, err := framing.NewEventReader(framing.CBOR, bytes.NewReader(stream)).Next()
		// The other decoder drops leading tags 55799.
		if wantErr == nil && (err != nil || !bytes.HasSuffix(item, want)) {
			t.Fatalf("read %x, %v, want %x", item, err, want)
		}
		if err == nil && definite.Wellformed(item) != nil &&
			!strings.Contains(definite.Wellformed(item).Error(), "invalid simple value") {
			t.Fatalf("read %x: %v", item, definite.Wellformed(item))
		}
	})
}

// textAt is the value at a path of a decoded object; "" if there is none.
func textAt(v any, path ...string) string {
	for _, name := range path {
		if name == "[0]" {
			a, _ := v.([]any)
			if len(a) == 0 {
				return ""
			}
			v = a[0]
			continue
		}
		m, _ := v.(map[string]any)
		v = m[name]
	}
	switch v.(type) {
	case string, bool, int64, float64, json.Number:
		return fmt.Sprint(v)
	}
	return ""
}

// valueOf is the value of a selectable field of a decoded object.
func valueOf(object any, f framing.Field) string {
	for _, path := range f.Paths {
		if v := textAt(object, path...); v != "" {
			return v
		}
	}
	return f.Default
}

// tagless accepts no tags: the scanner takes no value behind one.
var tagless, _ = cbor.DecOptions{TagsMd: cbor.TagsForbidden, MaxNestedLevels: 10000}.DecMode()

// cborTwin reports whether another decoder reads the event.
func cborTwin(event []byte) (tw twin, ok bool) {
	var ev struct {
		Type   string         `json:"type"`
		Object map[string]any `json:"object"`
	}
	if asKubernetes.Unmarshal(event, &ev) != nil {
		return tw, false
	}
	var any any
	if untagged := bytes.ReplaceAll(event, []byte(selfDescribed), nil); tagless.Unmarshal(untagged, &any) == nil {
		for _, field := range manyFields {
			tw.fields = append(tw.fields, valueOf(ev.Object, field))
		}
	}
	if tw.typ = ev.Type; tw.typ == "ERROR" {
		tw.message = textAt(ev.Object, "message")
	}
	tw.metadataTwin(ev.Object)
	return tw, true
}

// FuzzCBOREvent compares with another decoder.
func FuzzCBOREvent(f *testing.F) {
	seedEvents(f, asCBOR, asCBORMetadata)
	str := func(s string) cbor.RawMessage { return append([]byte{0x60 | byte(len(s))}, s...) }
	metadata := cborMap("labels", map[string]string{"a": "1", "b": ""}, "resourceVersion", "7", "uid", "u", "namespace", "n", "name", "x")
	spec := map[string]any{"nodeName": "n1", "hostNetwork": true, "restartPolicy": -5, "more": []any{1, 2.5, nil, []byte{1}}}
	for _, object := range [][]byte{
		cborPod("metadata", metadata),
		tagged(cborMap("metadata", metadata, "apiVersion", "v1", "kind", "Pod")),
		tagged(cborMap("apiVersion", "v1", "spec", spec, "metadata", metadata, "kind", "Pod")),
		tagged(cborMap("kind", "Pod", "metadata", metadata, "spec", spec, "apiVersion", "v1", "status",
			cborMap("podIPs", []any{map[string]string{"ip": "1"}, map[string]string{"ip": "2"}}, "phase", 1.0, "podIP", "3"))),
		cborPod("metadata", metadata, "status", cborMap("podIPs", []any{}, "podIP", "3", "phase", 2.5), "spec", nil),
		cborPod(str("metadata"), metadata, str("spec"), cborMap(str("nodeName"), str("n1"))),
		cborPod("metadata", cborMap("name", "x", "resourceVersion", "7"), "spec", cborMap("restartPolicy", -1.5)),
	} {
		f.Add(cborEvent("ADDED", object), uint64(12345))
		f.Add(tagged(cborMap("object", cbor.RawMessage(object), "type", "MODIFIED")), uint64(1))
	}
	for n := range 4 { // entries, around the number at which the heads of the maps grow
		spec := make(map[string]int)
		for i := range 20 + n {
			spec[strconv.Itoa(i)] = i
		}
		object := slices.Concat([]byte{0xb8, byte(23 + n)}, cborMap("kind", "Pod", "apiVersion", "v1", "metadata", metadata)[1:], encodeCBOR(spec)[1:])
		f.Add(cborEvent("ADDED", tagged(object)), uint64(7))
	}
	end := framing.InitialEventsEnd        // is cut out from any place among others
	many := map[string]string{end: "true"} // whose head is shorter without it
	for i := range 23 {
		many[strconv.Itoa(i)] = ""
	}
	for _, metadata := range []cbor.RawMessage{
		cborMap("resourceVersion", "7", "annotations", cborMap(end, "true")),
		cborMap("uid", "", "annotations", cborMap(end, "true"), "resourceVersion", "7"),
		cborMap("annotations", cborMap("a", "1", end, "true", "z", "2"), "resourceVersion", "7"),
		cborMap("resourceVersion", "7", "annotations", cborMap("a", "1", end, "true"), "uid", ""),
		cborMap("resourceVersion", "7", "annotations", many),
	} {
		// The object's tag may take more bytes than needed.
		for _, tag := range []string{selfDescribed, "\xda\x00\x00\xd9\xf7", "\xdb\x00\x00\x00\x00\x00\x00\xd9\xf7"} {
			event := cborEvent("BOOKMARK", cborPod("spec", cborMap(), "metadata", metadata, "status", cborMap()))
			at := bytes.LastIndex(event, []byte(selfDescribed))
			f.Add(slices.Concat(event[:at], []byte(tag), event[at+len(selfDescribed):]), uint64(1<<64-1))
		}
	}
	form := asCBOR.captured(f)[0].form(f)
	s := framing.NewScanner(framing.CBOR, manyFields)
	f.Fuzz(func(t *testing.T, event []byte, rv uint64) {
		ev, err := s.Event(event)
		if err != nil {
			return
		}
		checkTwin(t, framing.CBOR, s, event, ev, rv, cborTwin)
		if _, known := cborTwin(event); !known || ev.Object == nil {
			return
		}
		// An item of a built-in type has no type, and gets it back.
		item, want := bytes.Join(form.AppendItem(nil, nil, ev.Object, true), nil), decodeCBOR(t, ev.Object.Bytes()).(map[string]any)
		again, err := s.Item(item, form.TypeMeta("Pod"))
		if err != nil {
			t.Fatal(err)
		}
		want["kind"], want["apiVersion"] = "Pod", "v1"
		if got := decodeCBOR(t, again.Bytes()); !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("item %+v\nwant %+v", got, want)
		}
		delete(want, "kind")
		delete(want, "apiVersion")
		if got := decodeCBOR(t, item); !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("item %+v\nwant %+v", got, want)
		}
	})
}
