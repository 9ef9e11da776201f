package framing_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

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

func scanCBOR(t testing.TB, event []byte) framing.Event {
	t.Helper()
	ev, err := framing.NewScanner(framing.CBOR, podFields).Event(event)
	if err != nil {
		t.Fatalf("%v\nin %x", err, event)
	}
	return ev
}

// The scanner finds its entries wherever they are, in byte strings and in text strings.
func TestCBOREvent(t *testing.T) {
	text := func(s string) cbor.RawMessage { return append([]byte{0x60 | byte(len(s))}, s...) }
	metadata := cborMap("labels", map[string]string{"a": "1", "b": ""}, "resourceVersion", "7", "uid", "u", "namespace",
		"n", "name", "x")
	spec := map[string]any{"nodeName": "n1", "hostNetwork": true, "restartPolicy": -5,
		"more": []any{1, 2.5, nil, []byte{1}}}
	f := func(event []byte, fields ...string) {
		t.Helper()
		o := scanCBOR(t, event).Object
		if o.Key != "n/x" || o.Namespace != "n" || o.Name != "x" || o.ResourceVersion != 7 ||
			!maps.Equal(o.Labels, map[string]string{"a": "1", "b": ""}) || !slices.Equal(o.Fields, fields) {
			t.Errorf("read %+v, want fields %q", o, fields)
		}
		if !sameBytes(t, payload(t, o.Frame(framing.Added)), event) {
			t.Errorf("frame %x\nof %x", payload(t, o.Frame(framing.Added)), event)
		}
		left := readCBOREvent(t, payload(t, o.Left(12345))).Object
		want := bytes.Replace(readCBOREvent(t, event).Object, encodeCBOR("7"), encodeCBOR("12345"), 1)
		if !sameBytes(t, left, want) {
			t.Errorf("left as %x\nwant %x", left, want)
		}
	}
	f(cborEvent("ADDED", cborPod("metadata", metadata)), "", "false", "", "", "")
	f(tagged(cborMap("object", cbor.RawMessage(cborPod("metadata", metadata, "spec", spec)), "type", "ADDED")), "n1",
		"true", "-5", "", "")
	f(cborEvent("ADDED", tagged(cborMap("metadata", metadata, "apiVersion", "v1", "kind", "Pod"))), "", "false", "", "",
		"")
	f(cborEvent("ADDED", tagged(cborMap("apiVersion", "v1", "spec", spec, "metadata", metadata, "kind", "Pod"))), "n1",
		"true", "-5", "", "")
	f(cborEvent("ADDED", tagged(cborMap("kind", "Pod", "metadata", metadata, "spec", spec, "apiVersion", "v1",
		"status", cborMap("podIPs", []any{map[string]string{"ip": "1"}, map[string]string{"ip": "2"}}, "phase", 1.0,
			"podIP", "3")))),
		"n1", "true", "-5", "1", "1")
	f(cborEvent("ADDED", cborPod("metadata", metadata, "status", cborMap("podIPs", []any{}, "podIP", "3", "phase", 2.5),
		"spec", nil)), "", "false", "", "2.5", "3")
	f(cborEvent("ADDED", cborPod(text("metadata"), metadata, text("spec"), cborMap(text("nodeName"), text("n1")))),
		"n1", "false", "", "", "")
}

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
	f := func(event []byte, want string) {
		t.Helper()
		_, err := framing.NewScanner(framing.CBOR, podFields).Event(event)
		if err == nil || !strings.HasPrefix(err.Error(), "read watch event: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: error %v, want %q", event, err, want)
		}
	}
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
		`resourceVersion "8"`)
	mark := cborMap(framing.InitialEventsEnd, "true", framing.InitialEventsEnd, "true")
	f(cborEvent("BOOKMARK", cborPod("metadata", cborMap("resourceVersion", "7", "annotations", mark))),
		"found for a second time")
	f(cborEvent("BOOKMARK",
		cborPod("metadata", cborMap("resourceVersion", "7", "annotations", nil, "annotations", nil))),
		"found for a second time")
	many := map[string]string{framing.InitialEventsEnd: "true"}
	for i := range 23 {
		many[strconv.Itoa(i)] = ""
	}
	f(cborEvent("BOOKMARK", cborPod("metadata", cborMap("resourceVersion", "7", "annotations", many))),
		"more than 23 annotations")
	f(cborEvent("ERROR", tagged(cborMap("code", "410"))), "ERROR: cbor: cannot unmarshal")
}

func TestCBORStatus(t *testing.T) {
	ev := scanCBOR(t,
		cborEvent("ERROR",
			tagged(cborMap("kind", "Status", "metadata", cborMap(), "message", "m", "reason", "TooManyRequests",
				"details", cborMap("name", "n", "retryAfterSeconds", 3), "code", 429))))
	want := framing.Status{Code: 429, Reason: "TooManyRequests", Message: "m"}
	want.Details.RetryAfterSeconds = 3
	if ev.Type != framing.Error || ev.Status != want {
		t.Errorf("read %+v, want status %+v", ev, want)
	}
}

// The annotation is cut out from any place among others.
func TestCBORBookmarkForm(t *testing.T) {
	const end = framing.InitialEventsEnd
	f := func(metadata func(rv string, end bool) cbor.RawMessage) {
		t.Helper()
		bookmark := func(rv string, end bool) []byte {
			return cborEvent("BOOKMARK", cborPod("spec", cborMap(), "metadata", metadata(rv, end), "status", cborMap()))
		}
		form := scanCBOR(t, bookmark("7", true)).Form
		for _, rv := range []uint64{1, 1<<64 - 1} {
			for _, end := range []bool{true, false} {
				got, want := payload(t, form.Frame(rv, end)), bookmark(strconv.FormatUint(rv, 10), end)
				if !bytes.Equal(got, want) {
					t.Errorf("bookmark %q\nwant %q", got, want)
				}
			}
		}
	}
	f(func(rv string, last bool) cbor.RawMessage {
		if last {
			return cborMap("resourceVersion", rv, "annotations", cborMap(end, "true"))
		}
		return cborMap("resourceVersion", rv)
	})
	f(func(rv string, last bool) cbor.RawMessage {
		if last {
			return cborMap("uid", "", "annotations", cborMap(end, "true"), "resourceVersion", rv)
		}
		return cborMap("uid", "", "resourceVersion", rv)
	})
	f(func(rv string, last bool) cbor.RawMessage {
		if last {
			return cborMap("annotations", cborMap("a", "1", end, "true", "z", "2"), "resourceVersion", rv)
		}
		return cborMap("annotations", cborMap("a", "1", "z", "2"), "resourceVersion", rv)
	})
	f(func(rv string, last bool) cbor.RawMessage {
		if last {
			return cborMap("resourceVersion", rv, "annotations", cborMap("a", "1", end, "true"), "uid", "")
		}
		return cborMap("resourceVersion", rv, "annotations", cborMap("a", "1"), "uid", "")
	})
}

// A bookmark is made in its places even if the object's tag takes more bytes than needed.
func TestCBORBookmarkOfLongTag(t *testing.T) {
	const end = framing.InitialEventsEnd
	for _, tag := range []string{selfDescribed, "\xda\x00\x00\xd9\xf7", "\xdb\x00\x00\x00\x00\x00\x00\xd9\xf7"} {
		bookmark := func(metadata cbor.RawMessage) []byte {
			event := cborEvent("BOOKMARK", cborPod("metadata", metadata))
			at := bytes.LastIndex(event, []byte(selfDescribed))
			return slices.Concat(event[:at], []byte(tag), event[at+len(selfDescribed):])
		}
		form := scanCBOR(t, bookmark(cborMap("resourceVersion", "7", "annotations", cborMap(end, "true")))).Form
		for last, want := range map[bool][]byte{
			false: bookmark(cborMap("resourceVersion", "123")),
			true:  bookmark(cborMap("resourceVersion", "123", "annotations", cborMap(end, "true"))),
		} {
			if got := payload(t, form.Frame(123, last)); !bytes.Equal(got, want) {
				t.Errorf("tag %x: bookmark %q\nwant %q", tag, got, want)
			}
		}
	}
}

func TestCBORReader(t *testing.T) {
	read := func(r io.Reader) (items [][]byte, err error) {
		reader := framing.NewEventReader(framing.CBOR, r)
		for {
			item, err := reader.Next()
			if err != nil {
				return items, err
			}
			items = append(items, bytes.Clone(item))
		}
	}
	items := [][]byte{
		encodeCBOR("x"), {0x00}, {0xf9, 0x3c, 0x00}, tagged(cborMap("a", []any{1, map[string]string{}})), {0x80},
		encodeCBOR(strings.Repeat("x", 1<<20)), encodeCBOR(slices.Repeat([]int{1000}, 1<<16)), {0xf6},
		append(bytes.Repeat([]byte{0x81}, 1<<20), 0), // nested deeper than any reader goes
	}
	stream := bytes.Join(items, nil)
	for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)),
		iotest.DataErrReader(bytes.NewReader(stream))} {
		got, err := read(r)
		if err != io.EOF || !slices.EqualFunc(got, items, bytes.Equal) {
			t.Errorf("read %d items, %v, want %d", len(got), err, len(items))
		}
	}
	f := func(stream []byte, want error) {
		t.Helper()
		if got, err := read(bytes.NewReader(stream)); len(got) != 1 || !errors.Is(err, want) {
			t.Errorf("%.20x: read %d items, %v, want 1 and %v", stream, len(got), err, want)
		}
	}
	f([]byte{0x00, 0x18}, io.ErrUnexpectedEOF)
	f([]byte{0x00, 0x81}, io.ErrUnexpectedEOF)
	f([]byte{0x00, 0x42, 0x00}, io.ErrUnexpectedEOF)
	f([]byte{0x00, 0x5a, 0x01, 0x00, 0x00, 0x01}, framing.ErrTooLong)
	f([]byte{0x00, 0x82, 0x5a, 0x00, 0xf0, 0x00, 0x00}, io.ErrUnexpectedEOF)
	f(append([]byte{0x00, 0x5a, 0x01, 0x00, 0x00, 0x00}, make([]byte, 1<<24)...), framing.ErrTooLong)
	f([]byte{0x00, 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, framing.ErrTooLong)
	f([]byte{0x00, 0xba, 0x00, 0x90, 0x00, 0x00}, framing.ErrTooLong)
	broken := errors.New("broken")
	if got, err := read(io.MultiReader(bytes.NewReader([]byte{0x00}), iotest.ErrReader(broken))); len(got) != 1 ||
		err != broken {
		t.Errorf("read %d items, %v", len(got), err)
	}
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

// cborTwin is an event as another decoder reads it.
type cborTwin struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

func (tw cborTwin) metadata() map[string]any {
	m, _ := tw.Object["metadata"].(map[string]any)
	return m
}

// cborText is the value at a path; "" if there is none.
func cborText(v any, path []string) string {
	for _, name := range path {
		if a, ok := v.([]any); ok && name == "[0]" && len(a) > 0 {
			v = a[0]
			continue
		}
		m, _ := v.(map[string]any)
		v = m[name]
	}
	switch v.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(v)
	}
	return ""
}

// FuzzCBOREvent compares with another decoder, and sets another resourceVersion.
func FuzzCBOREvent(f *testing.F) {
	for _, c := range slices.Concat(asCBOR.captured(f), asCBORMetadata.captured(f)) {
		for _, section := range []string{"all", "initial", "bookmark", "expired"} {
			for i, event := range c.events(section) {
				if i < 3 {
					f.Add(event, uint64(1)<<(20*i))
				}
			}
		}
	}
	metadata := cborMap("name", "x", "resourceVersion", "7", "annotations",
		cborMap("a", "", framing.InitialEventsEnd, "true"))
	f.Add(cborEvent("ADDED",
		cborPod("metadata", metadata, "spec", cborMap("nodeName", "n1", "hostNetwork", true, "restartPolicy", -1.5))),
		uint64(1))
	f.Add(cborEvent("BOOKMARK", cborPod("metadata", metadata)), uint64(1<<64-1))
	tagless, err := cbor.DecOptions{TagsMd: cbor.TagsForbidden, MaxNestedLevels: 10000}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	form, _, err := framing.ParseListForm(framing.CBOR, cborPodList(cborMap("resourceVersion", "7"), []any{}))
	if err != nil {
		f.Fatal(err)
	}
	s := framing.NewScanner(framing.CBOR, podFields)
	decode := func(event []byte) (tw cborTwin, ok bool) { return tw, asKubernetes.Unmarshal(event, &tw) == nil }
	f.Fuzz(func(t *testing.T, event []byte, rv uint64) {
		tw, ok := decode(event)
		ev, err := s.Event(event)
		if err != nil {
			return
		}
		if ok && ev.Type.String() != tw.Type {
			t.Fatalf("read %+v, want %+v", ev, tw)
		}
		rv = max(rv, 1)
		m := tw.metadata()
		switch ev.Type {
		case framing.Error:
			if ok && ev.Status.Message != cborText(tw.Object, []string{"message"}) {
				t.Fatalf("read %+v, want %+v", ev.Status, tw)
			}
		case framing.Bookmark:
			for _, end := range []bool{false, ev.InitialEventsEnd} {
				made := payload(t, ev.Form.Frame(rv, end))
				got, err := s.Event(made)
				if err != nil || got.Type != framing.Bookmark || got.ResourceVersion != rv ||
					got.InitialEventsEnd != end {
					t.Fatalf("made %+v, %v, want resourceVersion %d, end %v", got, err, rv, end)
				}
				twin, fine := decode(made)
				if !ok {
					continue
				}
				m["resourceVersion"] = strconv.FormatUint(rv, 10)
				if annotations, _ := m["annotations"].(map[string]any); ev.InitialEventsEnd && !end {
					with := m["annotations"]
					m["annotations"] = maps.Clone(annotations)
					delete(m["annotations"].(map[string]any), framing.InitialEventsEnd)
					if len(annotations) == 1 {
						delete(m, "annotations")
					}
					if !fine || !reflect.DeepEqual(twin, tw) {
						t.Fatalf("made %+v\nwant %+v", twin, tw)
					}
					m["annotations"] = with
				} else if !fine || !reflect.DeepEqual(twin, tw) {
					t.Fatalf("made %+v\nwant %+v", twin, tw)
				}
			}
		default:
			o := ev.Object
			for _, left := range []framing.Frame{o.Left(rv), o.Deleted(rv).Frame(framing.Deleted),
				o.Deleted(1 << 63).Left(rv)} {
				got, err := s.Event(payload(t, left))
				if err != nil || got.Type != framing.Deleted || got.ResourceVersion != rv || got.Object.Key != o.Key ||
					!maps.Equal(got.Object.Labels, o.Labels) || !slices.Equal(got.Object.Fields, o.Fields) {
					t.Fatalf("left as %+v, %v", got, err)
				}
			}
			if !ok {
				return
			}
			if twin, fine := decode(payload(t, o.Frame(ev.Type))); !fine || !reflect.DeepEqual(twin, tw) {
				t.Fatalf("framed as %+v\nwant %+v", twin, tw)
			}
			labels, _ := m["labels"].(map[string]any)
			same := len(labels) == len(o.Labels)
			for key, value := range labels {
				text, _ := value.(string)
				same = same && o.Labels[key] == text
			}
			if namespace, _ := m["namespace"].(string); !same || o.Name != m["name"] || o.Namespace != namespace ||
				strconv.FormatUint(o.ResourceVersion, 10) != strings.TrimLeft(m["resourceVersion"].(string), "0") {
				t.Fatalf("read %+v\nwant %+v", o, tw)
			}
			object := o.Bytes()[len(selfDescribed):]
			var any any
			if tagless.Unmarshal(object, &any) == nil {
				for i, field := range podFields {
					want := field.Default
					for _, path := range slices.Backward(field.Paths) {
						if v := cborText(tw.Object, path); v != "" {
							want = v
						}
					}
					if o.Fields[i] != want {
						t.Fatalf("%s: %q, want %q", field.Label, o.Fields[i], want)
					}
				}
			}
			open, rest := form.Item(o, true)
			var item map[string]interface{}
			if err := asKubernetes.Unmarshal(append([]byte(open), rest...), &item); err != nil {
				t.Fatal(err)
			}
			delete(tw.Object, "kind")
			delete(tw.Object, "apiVersion")
			if !reflect.DeepEqual(item, tw.Object) {
				t.Fatalf("item %+v\nwant %+v", item, tw.Object)
			}
		}
	})
}
