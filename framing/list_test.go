package framing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
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

// readItems reads a list to its end.
func readItems(e framing.Encoding, body io.Reader) (items [][]byte, meta framing.ListMeta, err error) {
	meta, err = framing.ReadList(e, body, func(item []byte) error {
		items = append(items, bytes.Clone(item))
		return nil
	})
	return items, meta, err
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
	// Lists of shards name their selector, except for lists of metadata and of custom resources.
	const selector = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	shard, shardPage := eight, page
	shard.ShardSelector, shardPage.ShardSelector = selector, selector
	inJSON(builtIn, shard, `?"`, `8","shardInfo":{"selector":"`+selector+`"}`)
	inJSON(builtIn, shardPage, `?"`, `8","continue":"eyJ2=","remainingItemCount":300,"shardInfo":{"selector":"`+selector+`"}`)
	inJSON(metadata, shard, "?", "8")
	inJSON(custom, shard, "?", "8")
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
	inProtobuf(shardPage, protobufList(listMeta("8", "eyJ2=", varint(4, 300), message(5, text(1, selector)))), nil)
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
	inCBOR(rv7, none, shardPage, 0, cborMap("resourceVersion", "8", "continue", "eyJ2=", "remainingItemCount", 300,
		"shardInfo", cborMap("selector", selector)), none)
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
	f(protobufList(listMeta("7", "", []byte{0x12, 9})), "metadata: unexpected EOF")
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
	f(slices.Concat(magic, text(2, "")), "byte 4: found tag 12, expected 0a")
	f(slices.Concat(magic, message(1, text(1, "v1"))), "expected tag 12")
	f(slices.Concat(magic, typeMeta, text(3, "")), "found tag 1a, expected 12")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")), "overflow")
	f(slices.Concat(magic, typeMeta, []byte("\x12\x80\x00")), "length 0 takes 2 bytes")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), text(1, "")), "unexpected EOF")
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
	none := func([]byte) error { return nil }
	if _, err := framing.ReadList(framing.Protobuf, list(framing.MaxEvent+1, 1), none); !errors.Is(err, framing.ErrTooLong) {
		t.Errorf("error %v, want %v", err, framing.ErrTooLong)
	}
	before, n := heap(), 0
	_, err := framing.ReadList(framing.Protobuf, list(1<<20, 64), func(item []byte) error {
		if n++; len(item) != 1<<20 {
			t.Errorf("item %d: %d bytes", n, len(item))
		}
		if n < 64 {
			return nil
		}
		if held := heap() - before; held > 3<<20 {
			t.Errorf("%d bytes held after 64 items of 1 MiB", held)
		}
		return nil
	})
	if n != 64 || err != nil {
		t.Errorf("%d items, %v", n, err)
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

// fuzzList compares what is read, however the list is split, with what a twin reads of it. A form that
// is taken from the list without its items, if that has one, reproduces the list from its items.
func fuzzList(t *testing.T, e framing.Encoding, body []byte, seed uint64, want [][]byte, meta framing.ListMeta, ok bool, empty []byte) {
	same := bytes.Equal
	if e == framing.CBOR {
		same = func(a, b []byte) bool { return reflect.DeepEqual(decodeCBOR(t, a), decodeCBOR(t, b)) }
	}
	items, m, err := readItems(e, &uneven{body, rand.New(rand.NewPCG(seed, 0))})
	if badVersion := err != nil && strings.Contains(err.Error(), ": resourceVersion "); ok != (err == nil) && !badVersion && e != framing.CBOR {
		t.Fatalf("ended with %v, but the twin says ok=%v", err, ok)
	}
	if ok && err == nil && (!slices.EqualFunc(items, want, same) || m != meta) {
		t.Fatalf("items %q, metadata %+v, want %q and %+v", items, m, want, meta)
	}
	form, meta, err := framing.ParseListForm(e, empty)
	s, typeMeta := framing.NewScanner(e, podFields), []byte(nil)
	if ok = ok && err == nil; ok {
		typeMeta = form.TypeMeta("Kind")
	}
	var objects []*framing.Object
	for _, raw := range items {
		o, err := s.Item(raw, typeMeta)
		typed := bytes.Contains(raw, []byte(`"kind"`)) || bytes.Contains(raw, []byte(`"apiVersion"`))
		ok = ok && err == nil && (e != framing.JSON || typeMeta == nil || !typed)
		objects = append(objects, o)
	}
	if !ok {
		return
	}
	if got := assemble(form, meta, objects); !same(got, body) {
		t.Fatalf("list %q\nwant %q", got, body)
	}
}

// FuzzListReader compares with encoding/json.
func FuzzListReader(f *testing.F) {
	seedLists(f, asJSON)
	f.Add([]byte(` { "items" : [ 1 , [ ] ] , "metadata" : null } `), uint64(2))
	f.Add([]byte(`{"items":[`+nestedJSON(`[{"a":`, "1", "}]", 100)+`]}`), uint64(3))
	f.Add([]byte(`{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x",`+
		`"resourceVersion":"7"}}]}`+"\n"), uint64(1))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		compact := jsontext.Value(bytes.Clone(body))
		if !compact.IsValid() {
			return
		}
		var list map[string]json.RawMessage
		var items []json.RawMessage
		var meta metav1.ListMeta
		member := func(name string, v any) bool {
			raw, found := list[name]
			return !found || json.Unmarshal(raw, v) == nil
		}
		ok := json.Unmarshal(body, &list) == nil && list != nil && member("items", &items) && member("metadata", &meta)
		var want [][]byte
		for _, item := range items {
			want = append(want, item)
		}
		var empty []byte // in JSON a list with items has its form too, but no encoder writes spaces
		if compact.Compact() == nil && string(compact) == strings.TrimSuffix(string(body), "\n") {
			empty = body
		}
		fuzzList(t, framing.JSON, body, seed, want, listMetaTwin(meta), ok, empty)
	})
}

// FuzzProtobufListReader compares with apimachinery's types.
func FuzzProtobufListReader(f *testing.F) {
	seedLists(f, asProtobuf, asProtobufMetadata)
	f.Add(protobufList(listMeta("7", "c", varint(4, 3)), text(2, "a"), text(2, "")), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		u, items, ok := protobufListTwin(body)
		var meta metav1.ListMeta
		first := u.Raw[:len(u.Raw)-itemBytes(items)]
		if ok && meta.Unmarshal(protobufContent(first)) != nil {
			return // it refuses fields of other types that nobody reads
		}
		u.Raw = first
		empty, _ := u.Marshal()
		fuzzList(t, framing.Protobuf, body, seed, items, listMetaTwin(meta), ok, append([]byte("k8s\x00"), empty...))
	})
}

// listMetaTwin is what a list's metadata says. A resourceVersion that is no number is refused.
func listMetaTwin(meta metav1.ListMeta) framing.ListMeta {
	rv, _ := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	want := framing.ListMeta{ResourceVersion: rv, Continue: meta.Continue}
	if meta.RemainingItemCount != nil {
		want.RemainingItemCount = *meta.RemainingItemCount
	}
	return want
}

// protobufContent is the content of a field that holds a message.
func protobufContent(field []byte) []byte {
	_, _, n := protowire.ConsumeTag(field)
	content, _ := protowire.ConsumeBytes(field[max(n, 0):])
	return content
}

// protobufListTwin reads a list with an envelope as kube-apiserver writes it.
func protobufListTwin(body []byte) (u apiruntime.Unknown, items [][]byte, ok bool) {
	rest, found := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !found || u.Unmarshal(rest) != nil || u.ContentEncoding != "" || u.ContentType != "" {
		return u, nil, false
	}
	if again, err := u.Marshal(); err != nil || !bytes.Equal(again, rest) {
		return u, nil, false
	}
	want := protowire.Number(1) // the metadata, and then items
	for b := u.Raw; len(b) > 0; want = 2 {
		number, typ, n := protowire.ConsumeTag(b)
		if n != 1 || typ != protowire.BytesType || number != want {
			return u, nil, false
		}
		value, size := protowire.ConsumeBytes(b[n:])
		if size != protowire.SizeBytes(len(value)) {
			return u, nil, false
		}
		if number == 2 {
			items = append(items, value)
		}
		b = b[n+size:]
	}
	return u, items, len(u.Raw) > 0
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
	f.Add(tagged(cborMap("items", []any{cbor.RawMessage("\x61\xff")}, "metadata", cborMap("resourceVersion", "7"))), uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		var list struct {
			Items    []cbor.RawMessage `json:"items"`
			Metadata metav1.ListMeta   `json:"metadata"`
		}
		ok := asKubernetes.Unmarshal(body, &list) == nil
		ok = ok && asKubernetes.Unmarshal(body, new(any)) == nil // a raw item is not looked into
		var want [][]byte
		for _, item := range list.Items {
			want = append(want, item)
		}
		fuzzList(t, framing.CBOR, body, seed, want, listMetaTwin(list.Metadata), ok, body)
	})
}
