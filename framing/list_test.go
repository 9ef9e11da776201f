package framing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/framing"
)

// protobufList is a list of these fields; items are field 2.
func protobufList(fields ...[]byte) []byte {
	return slices.Concat([]byte("k8s\x00"), message(1, text(1, "v1"), text(2, "PodList")), message(2, fields...),
		text(3, ""), text(4, ""))
}

// listMeta is the metadata of a list, with any further fields.
func listMeta(rv, token string, more ...[]byte) []byte {
	return message(1, append([][]byte{text(1, ""), text(2, rv), text(3, token)}, more...)...)
}

// A list of built-in types holds the object without its type.
func cborPodList(metadata cbor.RawMessage, items any) []byte {
	return tagged(cborMap("items", items, "kind", "PodList", "metadata", metadata, "apiVersion", "v1"))
}

// readItems reads a list to its end. A list that ends early has no proper end behind that.
func readItems(e framing.Encoding, body io.Reader) (items [][]byte, meta framing.ListMeta, err error) {
	r := framing.NewListReader(e, body)
	for {
		item, err := r.Next()
		if err == io.EOF {
			meta, err = r.Metadata()
			return items, meta, err
		}
		if err != nil {
			if strings.Contains(err.Error(), "EOF") {
				if _, again := r.Next(); again == io.EOF {
					panic("a list ended early, and then properly")
				}
			}
			return items, meta, err
		}
		items = append(items, bytes.Clone(item))
	}
}

// checkEnvelope compares a list of n items, whose bytes are given, with the list that it must be.
func checkEnvelope(t *testing.T, e framing.Encoding, empty []byte, m framing.ListMeta, n int, items, want []byte) {
	t.Helper()
	form, _, err := framing.ParseListForm(e, empty)
	if err != nil {
		t.Fatal(err)
	}
	head, tail := form.Envelope(m, n, len(items))
	if got := slices.Concat(head, items, tail); !sameBytes(t, got, want) {
		t.Errorf("got %.200q\nwant %.200q", got, want)
	}
}

func TestListEnvelope(t *testing.T) {
	seven, eight := framing.ListMeta{ResourceVersion: 7}, framing.ListMeta{ResourceVersion: 8}
	next := framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2="}
	page := framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2=", RemainingItemCount: 300}
	last := framing.ListMeta{ResourceVersion: 1<<64 - 1}

	const builtIn = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"?"},"items":[]}` + "\n"
	const metadata = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"?"},"items":null}` + "\n"
	const custom = `{"apiVersion":"ex.io/v1","items":[],"kind":"FooList","metadata":{"continue":"",` +
		`"resourceVersion":"?"}}` + "\n"
	inJSON := func(form string, m framing.ListMeta, was, is string) {
		t.Helper()
		checkEnvelope(t, framing.JSON, []byte(strings.Replace(form, "?", "7", 1)), m, 0, nil, []byte(strings.Replace(form, was, is, 1)))
	}
	inJSON(builtIn, last, "?", "18446744073709551615")
	inJSON(builtIn, page, `?"`, `8","continue":"eyJ2=","remainingItemCount":300`)
	inJSON(metadata, eight, "?", "8")
	inJSON(custom, next, `"","resourceVersion":"?`, `"eyJ2=","resourceVersion":"8`)
	inJSON(custom, page, `"","resourceVersion":"?`, `"eyJ2=","remainingItemCount":300,"resourceVersion":"8`)

	empty := protobufList(listMeta("7", ""))
	inProtobuf := func(m framing.ListMeta, want []byte, items []byte) {
		t.Helper()
		checkEnvelope(t, framing.Protobuf, empty, m, 0, items, want)
	}
	inProtobuf(last, protobufList(listMeta("18446744073709551615", "")), nil)
	inProtobuf(next, protobufList(listMeta("8", "eyJ2=")), nil)
	inProtobuf(page, protobufList(listMeta("8", "eyJ2=", varint(4, 300))), nil)
	for _, n := range []int{100, 127, 128, 16_383, 16_384, 1 << 21} {
		inProtobuf(eight, protobufList(listMeta("8", ""), make([]byte, n)), make([]byte, n))
	}
	form, meta, err := framing.ParseListForm(framing.Protobuf, empty)
	if err != nil || meta != seven {
		t.Errorf("got %+v, %v", meta, err)
	}
	for _, kind := range []string{"Pod", ""} {
		if got := form.TypeMeta(kind); !bytes.Equal(got, message(1, text(1, "v1"), text(2, kind))) {
			t.Errorf("TypeMeta(%q) = %q", kind, got)
		}
	}

	inCBOR := func(metadata, items any, m framing.ListMeta, n int, wantMetadata, wantItems any) {
		t.Helper()
		list := func(metadata, items any) []byte { return cborPodList(metadata.(cbor.RawMessage), items) }
		checkEnvelope(t, framing.CBOR, list(metadata, items), m, n, bytes.Repeat([]byte{0xa0}, n), list(wantMetadata, wantItems))
	}
	none, one, rv7, rv8 := []any{}, []any{cborMap()}, cborMap("resourceVersion", "7"), cborMap("resourceVersion", "8")
	inCBOR(rv7, none, last, 0, cborMap("resourceVersion", "18446744073709551615"), none)
	inCBOR(rv7, none, page, 1, cborMap("resourceVersion", "8", "continue", "eyJ2=", "remainingItemCount", 300), one)
	for _, n := range []int{23, 24, 255, 256, 1<<16 - 1, 1 << 16} {
		inCBOR(rv7, none, eight, n, rv8, slices.Repeat(one, n))
	}
	inCBOR(rv7, nil, eight, 0, rv8, nil)
	inCBOR(rv7, nil, eight, 1, rv8, one)
	inCBOR(cborMap("resourceVersion", "7", "continue", ""), none, eight, 0, cborMap("resourceVersion", "8", "continue", ""), none)
}

// A form that could not be reproduced is refused and not changed.
func TestParseListFormErrors(t *testing.T) {
	of := func(e framing.Encoding) func(body []byte, want string) {
		return func(body []byte, want string) {
			t.Helper()
			_, _, err := framing.ParseListForm(e, body)
			wantError(t, body, err, "read list: ", want)
		}
	}
	f := of(framing.JSON)
	f(nil, "unexpected end")
	f([]byte(`{}`), "resourceVersion")
	f([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":""},"items":[]}`+"\n"), "resourceVersion")
	f([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`), "unknown form") // no newline
	f([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","shardInfo":{}},"items":[]}`+"\n"), "unknown form")
	f([]byte(`{"kind":"PodList","apiVersion":"v1","items":[],"metadata":{"resourceVersion":"7"}}`+"\n"), "unknown form")
	f([]byte(`{"kind": "PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n"), "unknown form")

	f = of(framing.Protobuf)
	f(nil, "byte 0: no k8s\\0")
	f([]byte(`{"kind":"PodList"}`), "byte 0: no k8s\\0")
	f(protobufList(), "expected tag 0a")
	f(protobufList(text(2, "item")), "found tag 12, expected 0a")
	f(protobufList(message(1)), `resourceVersion ""`)
	f(protobufList(listMeta("x", "")), `resourceVersion "x"`)
	f(protobufList(listMeta("7", "", []byte{0x12, 9})), "metadata: byte 7: length 9 ends past the message")
	f(protobufList(listMeta("07", "")), "unknown form")
	f(protobufList(listMeta("7", "", varint(4, 0))), "unknown form")
	f(protobufList(listMeta("7", "", message(5, text(1, "shard")))), "unknown form")
	f(protobufList(message(1, text(2, "7"), text(3, ""))), "unknown form") // no selfLink
	f(protobufList(listMeta("7", ""), text(2, "item")), "unknown form")    // not empty
	f(protobufList(listMeta("7", ""))[:25], "ends past the message")
	f(append(protobufList(listMeta("7", "")), 0), "after the object")

	f = of(framing.CBOR)
	metadata := cborMap("resourceVersion", "7")
	f(nil, "EOF")
	f(encodeCBOR("x"), "cannot unmarshal")
	f(append(cborPodList(metadata, []any{}), 0), "extraneous data")
	f(cborPodList(cborMap(), []any{}), `resourceVersion ""`)
	f(cborPodList(cborMap("resourceVersion", "7", "shardInfo", nil), []any{}), "unknown form")
	f(cborPodList(metadata, []any{cborMap()}), "unknown form")
	f(tagged(cborMap("kind", "PodList", "metadata", metadata, "apiVersion", "v1", "more", 1, "items", []any{})), "unknown form")
	f(tagged(cborMap("kind", "PodList", "metadata", metadata, "items", []any{})), "unknown form")
}

func TestListReader(t *testing.T) {
	f := func(e framing.Encoding, body []byte, meta framing.ListMeta, want ...string) {
		t.Helper()
		for _, r := range []io.Reader{iotest.HalfReader(bytes.NewReader(body)), iotest.OneByteReader(bytes.NewReader(body))} {
			items, m, err := readItems(e, r)
			if err != nil || m != meta || string(bytes.Join(items, []byte("|"))) != strings.Join(want, "|") {
				t.Errorf("%.200q: items %.200q, metadata %+v, %v, want %.200q and %+v", body, items, m, err, want, meta)
			}
		}
	}
	seven, next := framing.ListMeta{ResourceVersion: 7}, framing.ListMeta{ResourceVersion: 7, Continue: "c"}
	page := framing.ListMeta{ResourceVersion: 7, Continue: "c", RemainingItemCount: 3}
	for _, c := range []struct {
		body string
		meta framing.ListMeta
		want []string
	}{
		{`{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":[2]}]}`, seven, []string{`{"a":1}`, `{"b":[2]}`}},
		{`{"items":[{"a":1}],"metadata":{"continue":"c","resourceVersion":"7"}}` + "\n", next, []string{`{"a":1}`}},
		{`{"metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"items":[]}`, page, nil},
		{` { "kind" : "L" , "items" : [ 1 , [ ] ] , "metadata" : { "resourceVersion" : "7" } } `, seven, []string{`1`, `[ ]`}},
		{`{"items":null,"metadata":{"resourceVersion":"7"}}`, seven, nil},
		{`{"metadata":{"resourceVersion":"7"}}`, seven, nil},
	} {
		f(framing.JSON, []byte(c.body), c.meta, c.want...)
	}
	long := strings.Repeat("x", 100_000)
	f(framing.Protobuf, protobufList(listMeta("7", "")), seven)
	f(framing.Protobuf, protobufList(listMeta("7", ""), text(2, "a"), text(2, ""), text(2, long), text(2, "b")), seven, "a", "", long, "b")
	f(framing.Protobuf, protobufList(listMeta("7", "c", varint(4, 3)), text(2, "a")), page, "a")
	a, b := cborMap("a", 1), cborMap("b", []int{2})
	metadata := cborMap("resourceVersion", "7", "continue", "c", "remainingItemCount", 3)
	f(framing.CBOR, tagged(cborMap("metadata", metadata, "items", []any{a, b})), page, string(a), string(b))
	f(framing.CBOR, tagged(cborMap("items", []any{a, b}, "kind", "PodList", "metadata", metadata)), page, string(a), string(b))
	f(framing.CBOR, tagged(cborMap("items", []any{}, "metadata", metadata)), page)
	f(framing.CBOR, tagged(cborMap("items", nil, "metadata", metadata)), page)
	f(framing.CBOR, tagged(cborMap("metadata", metadata)), page)
}

func TestListReaderErrors(t *testing.T) {
	of := func(e framing.Encoding) func(body []byte, want string) {
		return func(body []byte, want string) {
			t.Helper()
			_, _, err := readItems(e, bytes.NewReader(body))
			wantError(t, body, err, "read list: ", want)
		}
	}
	f := of(framing.JSON)
	f(nil, "unexpected EOF")
	f([]byte(`[]`), "expected an object")
	f([]byte(`{"items":{}}`), "expected items")
	f([]byte(`{"items":[],"metadata":1}`), "cannot unmarshal")
	f([]byte(`{"items":[]}{}`), "data after the list")
	f([]byte(`{"items":[1 2]}`), "")
	f([]byte(`{"items":[]}`), `resourceVersion ""`)

	f = of(framing.Protobuf)
	magic, typeMeta, meta := []byte("k8s\x00"), message(1, text(1, "v1"), text(2, "PodList")), listMeta("7", "")
	f(nil, "byte 0: unexpected EOF")
	f([]byte(`{"kind":"PodList"}`), "byte 4: found 7b 22 6b 69, expected 6b 38 73 00")
	f(slices.Concat(magic, text(2, "")), "byte 5: found tag 12, expected 0a")
	f(slices.Concat(magic, message(1, text(1, "v1"))), "expected tag 12")
	f(slices.Concat(magic, typeMeta, text(3, "")), "found tag 1a, expected 12")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")), "overflow")
	f(slices.Concat(magic, typeMeta, []byte("\x12\x80\x00")), "length 0 takes 2 bytes")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), text(1, "")), `resourceVersion ""`)
	f(slices.Concat(magic, typeMeta, []byte("\x12\x01\x0a\x05")), "length 5 ends past the list")
	f(slices.Concat(magic, typeMeta, []byte{0x12, byte(len(meta) + 1)}, meta, []byte("\x12\x00\x1a\x00\x22\x00")), "length 0 ends past the list")
	f(protobufList(), "found tag 1a, expected 0a")
	f(protobufList(text(2, "item")), "found tag 12, expected 0a")
	f(protobufList(message(1)), `resourceVersion ""`)
	f(protobufList(meta, varint(2, 1)), "found tag 10, expected 12")
	f(protobufList(meta, text(3, "x")), "found tag 1a, expected 12")
	f(protobufList(meta, []byte{0x12, 5, 'x'}), "length 5 ends past the list")
	f(append(protobufList(meta), 0), "data after the list")
	f(slices.Concat(magic, typeMeta, message(2, meta), text(3, "gzip"), text(4, "")), "found 1a 04 67 7a, expected 1a 00 22 00")

	f = of(framing.CBOR)
	whole := tagged(cborMap("items", []any{cborMap("a", 1)}, "metadata", cborMap("resourceVersion", "7"), "kind", "PodList"))
	for n := range whole {
		f(whole[:n], "unexpected EOF")
	}
	f(append(whole, 0), "data after the list")
	f(whole[3:], "found major type 5, expected 6")
	f(append([]byte{0xc1}, whole[3:]...), "tag 1, expected 55799")
	f(tagged(cborMap("items", "x")), "found major type 2, expected 4")
	f(tagged(cborMap("metadata", "x")), "cannot unmarshal")
	f(tagged(cborMap("metadata", cborMap("resourceVersion", "x"))), `resourceVersion "x"`)
	f(tagged(cborMap(1, 1)), "found major type 0, expected 2")
	f([]byte(selfDescribed+"\xa1\x45items\x9f\xff"), "indefinite length")
	f([]byte(selfDescribed+"\xa1\x45items\x9b\xff\xff\xff\xff\xff\xff\xff\xff"), "unexpected EOF")
}

// A reader needs the memory of the largest item, which is bounded.
func TestProtobufListReaderBound(t *testing.T) {
	head := slices.Concat([]byte("k8s\x00"), message(1, text(1, "v1"), text(2, "PodList")))
	list := func(size, items int) io.Reader {
		meta := listMeta("7", "")
		header := protowire.AppendVarint([]byte{0x12}, uint64(size))
		raw := protowire.AppendVarint([]byte{0x12}, uint64(len(meta)+items*(len(header)+size)))
		parts := []io.Reader{bytes.NewReader(slices.Concat(head, raw, meta))}
		for range items {
			parts = append(parts, bytes.NewReader(header), io.LimitReader(zeros{}, int64(size)))
		}
		return io.MultiReader(append(parts, strings.NewReader("\x1a\x00\x22\x00"))...)
	}
	over := framing.NewListReader(framing.Protobuf, list(framing.MaxEvent+1, 1))
	if _, err := over.Next(); !errors.Is(err, framing.ErrTooLong) {
		t.Errorf("error %v, want %v", err, framing.ErrTooLong)
	}
	before := heap()
	r := framing.NewListReader(framing.Protobuf, list(1<<20, 64))
	for i := range 64 {
		if item, err := r.Next(); len(item) != 1<<20 || err != nil {
			t.Fatalf("item %d: %d bytes, %v", i, len(item), err)
		}
	}
	if held := heap() - before; held > 3<<20 {
		t.Errorf("%d bytes held after 64 items of 1 MiB", held)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("error %v, want io.EOF", err)
	}
	runtime.KeepAlive(r)
}

// With the type, an item is what a watch would send. Without it, an item may only be inspected.
func TestProtobufItem(t *testing.T) {
	raw := slices.Concat(message(1, text(1, "x"), text(3, "a"), text(6, "7"), message(11, text(1, "l"), text(2, "v"))),
		message(2, text(10, "n1")))
	s := framing.NewScanner(framing.Protobuf, podFields)
	for _, typeMeta := range [][]byte{nil, message(1, text(1, "v1"), text(2, "Pod"))} {
		o, err := s.Item(raw, typeMeta)
		if err != nil {
			t.Fatal(err)
		}
		if o.Key != "a/x" || o.ResourceVersion != 7 || o.Labels["l"] != "v" || o.Fields[0] != "n1" {
			t.Errorf("read %+v", o)
		}
		want := slices.Concat([]byte("k8s\x00"), typeMeta, message(2, raw), text(3, ""), text(4, ""))
		if !bytes.Equal(o.Bytes(), want) {
			t.Errorf("object %q\nwant %q", o.Bytes(), want)
		}
	}
	for _, bad := range [][]byte{nil, raw[:20], raw[1:], append(bytes.Clone(raw), 0)} {
		if o, err := s.Item(bad, nil); err == nil || !strings.HasPrefix(err.Error(), "read list item: ") {
			t.Errorf("%q: read %+v, %v", bad, o, err)
		}
	}
}

// Items have no type in a list of built-in types, and have one in any other list.
func TestCBORItem(t *testing.T) {
	s := framing.NewScanner(framing.CBOR, nil)
	metadata := cborMap("name", "x", "resourceVersion", "7")
	f := func(list, item []byte, entries ...any) {
		t.Helper()
		form, _, err := framing.ParseListForm(framing.CBOR, list)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.Item(item, form.TypeMeta("Pod"))
		if err != nil {
			t.Fatal(err)
		}
		if !sameBytes(t, o.Bytes(), cborPod(entries...)) {
			t.Errorf("object %q\nwant %q", o.Bytes(), cborPod(entries...))
		}
		open, rest := form.Item(o, true)
		if got := append([]byte(open), rest...); !sameBytes(t, tagged(got), tagged(item)) {
			t.Errorf("item %q\nwant %q", got, item)
		}
	}
	builtIn := cborPodList(cborMap("resourceVersion", "7"), []any{})
	custom := cborPodList(cborMap("resourceVersion", "7", "continue", ""), []any{})
	f(builtIn, cborMap("metadata", metadata, "spec", cborMap()), "metadata", metadata, "spec", cborMap())
	f(custom, cborMap("metadata", metadata, "apiVersion", "v1", "spec", cborMap(), "kind", "Pod"), "metadata", metadata,
		"spec", cborMap())
	var many []any // around the size at which the head of a map grows
	for i := range 21 {
		many = append(many, strconv.Itoa(i), i)
	}
	for range 3 {
		many = append(many, "more"+strconv.Itoa(len(many)), nil)
		entries := append([]any{"metadata", metadata}, many...)
		item := append([]byte{0xb8, byte(len(entries) / 2)}, cborMap(entries...)[1:]...)
		want := append([]byte(selfDescribed+"\xb8"), byte(len(entries)/2+2))
		want = append(append(want, encodeCBOR("kind")...), encodeCBOR("Pod")...)
		want = append(append(want, encodeCBOR("apiVersion")...), encodeCBOR("v1")...)
		want = append(want, cborMap(entries...)[1:]...)
		form, _, _ := framing.ParseListForm(framing.CBOR, builtIn)
		o, err := s.Item(item, form.TypeMeta("Pod"))
		if err != nil || !bytes.Equal(o.Bytes(), want) {
			t.Fatalf("object %q, %v\nwant %q", o.Bytes(), err, want)
		}
		open, rest := form.Item(o, false)
		if got := append([]byte(open), rest...); !reflect.DeepEqual(decodeCBOR(t, got), decodeCBOR(t, item)) {
			t.Errorf("item %q\nwant %q", got, item)
		}
	}
	for _, item := range [][]byte{cborMap("metadata", metadata, "kind", "Pod"),
		append(cborMap("metadata", metadata), 0), nil, encodeCBOR("x")} {
		if _, err := s.Item(item, nil); err == nil || !strings.HasPrefix(err.Error(), "read list item: ") {
			t.Errorf("%q: error %v", item, err)
		}
	}
}

// seedLists adds the captured lists of representations as seeds.
func seedLists(f *testing.F, representations ...representation) {
	for _, r := range representations {
		for _, c := range r.captured(f) {
			for _, section := range []string{"empty", "list", "page"} {
				f.Add(c.bytes(section), uint64(1))
			}
		}
	}
}

// fuzzList compares a ListReader, however the list is split, with what a twin reads of it.
func fuzzList(t *testing.T, e framing.Encoding, body []byte, seed uint64, want [][]byte, meta framing.ListMeta, ok bool) {
	items, m, err := readItems(e, &uneven{body, rand.New(rand.NewPCG(seed, 0))})
	if badVersion := err != nil && strings.Contains(err.Error(), ": resourceVersion "); ok != (err == nil) && !badVersion {
		t.Fatalf("ended with %v, but the twin says ok=%v", err, ok)
	}
	if ok && err == nil && (!slices.EqualFunc(items, want, bytes.Equal) || m != meta) {
		t.Fatalf("items %q, metadata %+v, want %q and %+v", items, m, want, meta)
	}
}

// FuzzListReader compares with encoding/json.
func FuzzListReader(f *testing.F) {
	seedLists(f, asJSON)
	f.Add([]byte(` { "items" : [ 1 , [ ] ] , "metadata" : null } `), uint64(2))
	f.Add([]byte(`{"items":[`+nestedJSON(`[{"a":`, "1", "}]", 100)+`]}`), uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		if !jsontext.Value(body).IsValid() {
			return
		}
		var list map[string]json.RawMessage
		var items []json.RawMessage
		var meta struct {
			ResourceVersion, Continue string
			RemainingItemCount        int64
		}
		member := func(name string, v any) bool {
			raw, found := list[name]
			return !found || json.Unmarshal(raw, v) == nil
		}
		ok := json.Unmarshal(body, &list) == nil && list != nil && member("items", &items) && member("metadata", &meta)
		var want [][]byte
		for _, item := range items {
			want = append(want, item)
		}
		rv, _ := strconv.ParseUint(meta.ResourceVersion, 10, 64)
		fuzzList(t, framing.JSON, body, seed, want,
			framing.ListMeta{ResourceVersion: rv, Continue: meta.Continue, RemainingItemCount: meta.RemainingItemCount}, ok)
	})
}

// FuzzProtobufListReader compares with apimachinery's types.
func FuzzProtobufListReader(f *testing.F) {
	seedLists(f, asProtobuf, asProtobufMetadata)
	f.Add(protobufList(listMeta("7", "c", varint(4, 3)), text(2, "a"), text(2, "")), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		meta, want, ok := protobufListTwin(body)
		fuzzList(t, framing.Protobuf, body, seed, want, meta, ok)
	})
}

// protobufListTwin reads a list with an envelope as kube-apiserver writes it.
func protobufListTwin(body []byte) (meta framing.ListMeta, items [][]byte, ok bool) {
	rest, found := bytes.CutPrefix(body, []byte("k8s\x00"))
	var u apiruntime.Unknown
	if !found || u.Unmarshal(rest) != nil || u.ContentEncoding != "" || u.ContentType != "" {
		return meta, nil, false
	}
	again, err := u.Marshal()
	if err != nil || !bytes.Equal(again, rest) || u.Raw == nil {
		return meta, nil, false
	}
	for first, b := true, u.Raw; len(b) > 0; first = false {
		number, typ, n := protowire.ConsumeTag(b)
		if n != 1 || typ != protowire.BytesType {
			return meta, nil, false
		}
		value, size := protowire.ConsumeBytes(b[n:])
		if size != protowire.SizeBytes(len(value)) {
			return meta, nil, false
		}
		switch {
		case first && number == 1:
			if meta, ok = listMetaTwin(value); !ok {
				return meta, nil, false
			}
		case !first && number == 2:
			items = append(items, value)
		default:
			return meta, nil, false
		}
		b = b[n+size:]
	}
	return meta, items, ok
}

// listMetaTwin takes the last of each field.
func listMetaTwin(message []byte) (meta framing.ListMeta, ok bool) {
	rv := ""
	for b := message; len(b) > 0; {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return meta, false
		}
		size := protowire.ConsumeFieldValue(number, typ, b[n:])
		if size < 0 || number == 2 && typ != protowire.BytesType || number == 3 && typ != protowire.BytesType ||
			number == 4 && typ != protowire.VarintType {
			return meta, false
		}
		switch number {
		case 2:
			rv, _ = protowire.ConsumeString(b[n:])
		case 3:
			meta.Continue, _ = protowire.ConsumeString(b[n:])
		case 4:
			v, _ := protowire.ConsumeVarint(b[n:])
			meta.RemainingItemCount = int64(v)
		}
		b = b[n+size:]
	}
	var err error
	meta.ResourceVersion, err = strconv.ParseUint(rv, 10, 64)
	return meta, err == nil
}

// FuzzListForm: a form that is accepted reproduces the list that it was taken from.
func FuzzListForm(f *testing.F) {
	seedLists(f, asJSON)
	f.Add(
		[]byte(`{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x",`+
			`"resourceVersion":"7"}}]}`+"\n"), uint64(1))
	s := framing.NewScanner(framing.JSON, nil)
	f.Fuzz(func(t *testing.T, body []byte, _ uint64) {
		form, meta, err := framing.ParseListForm(framing.JSON, body)
		if err != nil || !jsontext.Value(body).IsValid() {
			return
		}
		typeMeta := form.TypeMeta("Kind")
		var objects []*framing.Object
		r := framing.NewListReader(framing.JSON, bytes.NewReader(body))
		for {
			raw, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			o, err := s.Item(raw, typeMeta)
			if err != nil || typeMeta != nil &&
				(bytes.Contains(raw, []byte(`"kind"`)) || bytes.Contains(raw, []byte(`"apiVersion"`))) {
				return
			}
			objects = append(objects, o)
			checkFrame(t, "added", o.Frame(framing.Added),
				slices.Concat([]byte(`{"type":"ADDED","object":{`), typeMeta, raw[1:], []byte("}\n")))
		}
		want := jsontext.Value(bytes.Clone(body))
		if want.Compact() != nil || string(want) != strings.TrimSuffix(string(body), "\n") {
			return // no encoder writes spaces
		}
		if got := assemble(form, meta, objects); !bytes.Equal(got, body) {
			t.Fatalf("list %s\nwant %s", got, body)
		}
	})
}

// FuzzProtobufListForm: a list that is assembled from the items of a list equals that list.
func FuzzProtobufListForm(f *testing.F) {
	seedLists(f, asProtobuf, asProtobufMetadata)
	s := framing.NewScanner(framing.Protobuf, nil)
	f.Fuzz(func(t *testing.T, body []byte, _ uint64) {
		_, _, _ = framing.ParseListForm(framing.Protobuf, body)
		_, want, ok := protobufListTwin(body)
		if !ok {
			return
		}
		var u apiruntime.Unknown
		if err := u.Unmarshal(body[4:]); err != nil {
			t.Fatal(err)
		}
		// The same list, when it was empty.
		u.Raw = u.Raw[:len(u.Raw)-itemBytes(want)]
		empty, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		form, meta, err := framing.ParseListForm(framing.Protobuf, append([]byte("k8s\x00"), empty...))
		if err != nil {
			return
		}
		var objects []*framing.Object
		for _, raw := range want {
			o, err := s.Item(raw, form.TypeMeta("Kind"))
			if err != nil {
				return
			}
			var object metav1.PartialObjectMetadata
			if object.Unmarshal(raw) == nil && (object.Name != o.Name || object.Namespace != o.Namespace) {
				t.Fatalf("read %+v, want %+v", o, object)
			}
			objects = append(objects, o)
		}
		if got := assemble(form, meta, objects); !bytes.Equal(got, body) {
			t.Fatalf("list %q\nwant %q", got, body)
		}
	})
}

// itemBytes is the number of bytes of these items in a list.
func itemBytes(items [][]byte) int {
	n := 0
	for _, item := range items {
		n += 1 + protowire.SizeBytes(len(item))
	}
	return n
}

// FuzzCBORList compares with another decoder.
func FuzzCBORList(f *testing.F) {
	seedLists(f, asCBOR, asCBORMetadata)
	f.Add(tagged(cborMap("items", nil, "metadata", cborMap("resourceVersion", "7", "remainingItemCount", 3))), uint64(2))
	s := framing.NewScanner(framing.CBOR, podFields)
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		if form, meta, err := framing.ParseListForm(framing.CBOR, body); err == nil {
			head, tail := form.Envelope(meta, 0, 0)
			if !reflect.DeepEqual(decodeCBOR(t, slices.Concat(head, tail)), decodeCBOR(t, body)) {
				t.Fatalf("form of %x writes %x", body, head)
			}
		}
		items, meta, err := readItems(framing.CBOR, &uneven{body, rand.New(rand.NewPCG(seed, 0))})
		if err != nil {
			return
		}
		for _, item := range items {
			_, _ = s.Item(item, []byte("\x44kind\x43Pod\x4aapiVersion\x42v1"))
		}
		var list struct {
			Items    []any `json:"items"`
			Metadata struct {
				ResourceVersion    string `json:"resourceVersion"`
				Continue           string `json:"continue"`
				RemainingItemCount int64  `json:"remainingItemCount"`
			} `json:"metadata"`
		}
		if asKubernetes.Unmarshal(body, &list) != nil {
			return
		}
		rv, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
		if err != nil ||
			meta != (framing.ListMeta{ResourceVersion: rv, Continue: list.Metadata.Continue,
				RemainingItemCount: list.Metadata.RemainingItemCount}) {
			t.Fatalf("read %+v, want %+v", meta, list.Metadata)
		}
		if len(items) != len(list.Items) {
			t.Fatalf("read %d items, want %d", len(items), len(list.Items))
		}
		for i, item := range items {
			if got := decodeCBOR(t, item); !reflect.DeepEqual(got, list.Items[i]) {
				t.Fatalf("item %v, want %v", got, list.Items[i])
			}
		}
	})
}
