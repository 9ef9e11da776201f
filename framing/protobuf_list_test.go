package framing_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

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

func TestProtobufListEnvelope(t *testing.T) {
	form, meta, err := framing.ParseListForm(framing.Protobuf, protobufList(listMeta("7", "")))
	if err != nil || meta != (framing.ListMeta{ResourceVersion: 7}) {
		t.Fatalf("got %+v, %v", meta, err)
	}
	f := func(m framing.ListMeta, items int, want []byte) {
		t.Helper()
		head, tail := form.Envelope(m, 0, items)
		if got := slices.Concat(head, make([]byte, items), tail); !bytes.Equal(got, want) {
			t.Errorf("%+v, %d bytes: got %.200q\nwant %.200q", m, items, got, want)
		}
	}
	f(framing.ListMeta{ResourceVersion: 1<<64 - 1}, 0, protobufList(listMeta("18446744073709551615", "")))
	f(framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2="}, 0, protobufList(listMeta("8", "eyJ2=")))
	f(framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2=", RemainingItemCount: 300}, 0,
		protobufList(listMeta("8", "eyJ2=", varint(4, 300))))
	for _, n := range []int{100, 127, 128, 16_383, 16_384, 1 << 21} {
		f(framing.ListMeta{ResourceVersion: 8}, n, protobufList(listMeta("8", ""), make([]byte, n)))
	}
	for kind, want := range map[string][]byte{"Pod": message(1, text(1, "v1"), text(2, "Pod")),
		"": message(1, text(1, "v1"), text(2, ""))} {
		if got := form.TypeMeta(kind); !bytes.Equal(got, want) {
			t.Errorf("TypeMeta(%q) = %q, want %q", kind, got, want)
		}
	}
}

// A form that could not be reproduced is refused and not changed.
func TestParseProtobufListFormErrors(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		if _, _, err := framing.ParseListForm(framing.Protobuf, body); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", body, err, want)
		}
	}
	f(nil, "read list: byte 0: no k8s\\0")
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
}

func TestProtobufListReader(t *testing.T) {
	f := func(body []byte, meta framing.ListMeta, want ...string) {
		t.Helper()
		r := framing.NewListReader(framing.Protobuf, iotest.HalfReader(bytes.NewReader(body)))
		var got []string
		for {
			item, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("%.200q: %v", body, err)
				return
			}
			got = append(got, string(item))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.200q: items %.200q, want %.200q", body, got, want)
		}
		if m, err := r.Metadata(); err != nil || m != meta {
			t.Errorf("%.200q: metadata %+v, %v, want %+v", body, m, err, meta)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%.200q: after the end: %v", body, err)
		}
	}
	seven := framing.ListMeta{ResourceVersion: 7}
	long := strings.Repeat("x", 100_000)
	f(protobufList(listMeta("7", "")), seven)
	f(protobufList(listMeta("7", ""), text(2, "a"), text(2, ""), text(2, long), text(2, "b")), seven, "a", "", long,
		"b")
	f(protobufList(listMeta("7", "c", varint(4, 3)), text(2, "a")),
		framing.ListMeta{ResourceVersion: 7, Continue: "c", RemainingItemCount: 3}, "a")
}

func TestProtobufListReaderErrors(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		r := framing.NewListReader(framing.Protobuf, bytes.NewReader(body))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", body, err, want)
		}
	}
	magic, typeMeta := []byte("k8s\x00"), message(1, text(1, "v1"), text(2, "PodList"))
	f(nil, "read list: byte 0: unexpected EOF")
	f([]byte(`{"kind":"PodList"}`), "byte 4: found 7b 22 6b 69, expected 6b 38 73 00")
	f(slices.Concat(magic, text(2, "")), "byte 5: found tag 12, expected 0a")
	f(slices.Concat(magic, message(1, text(1, "v1"))), "expected tag 12")
	f(slices.Concat(magic, typeMeta, text(3, "")), "found tag 1a, expected 12")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")), "overflow")
	f(slices.Concat(magic, typeMeta, []byte("\x12\x80\x00")), "length 0 takes 2 bytes")
	f(slices.Concat(magic, typeMeta, []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), text(1, "")),
		`resourceVersion ""`)
	f(slices.Concat(magic, typeMeta, []byte("\x12\x01\x0a\x05")), "length 5 ends past the list")
	meta := listMeta("7", "")
	f(slices.Concat(magic, typeMeta, []byte{0x12, byte(len(meta) + 1)}, meta, []byte("\x12\x00\x1a\x00\x22\x00")),
		"length 0 ends past the list")
	f(protobufList(), "found tag 1a, expected 0a")
	f(protobufList(text(2, "item")), "found tag 12, expected 0a")
	f(protobufList(message(1)), `resourceVersion ""`)
	f(protobufList(listMeta("7", ""), varint(2, 1)), "found tag 10, expected 12")
	f(protobufList(listMeta("7", ""), text(3, "x")), "found tag 1a, expected 12")
	f(protobufList(listMeta("7", ""), []byte{0x12, 5, 'x'}), "length 5 ends past the list")
	f(append(protobufList(listMeta("7", "")), 0), "data after the list")
	gzip := slices.Concat(magic, typeMeta, message(2, listMeta("7", "")), text(3, "gzip"), text(4, ""))
	f(gzip, "found 1a 04 67 7a, expected 1a 00 22 00")
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

// FuzzProtobufListReader compares with apimachinery's types.
func FuzzProtobufListReader(f *testing.F) {
	for _, c := range slices.Concat(asProtobuf.captured(f), asProtobufMetadata.captured(f)) {
		for _, section := range []string{"empty", "list", "page"} {
			f.Add(c.bytes(section), uint64(1))
		}
	}
	f.Add(protobufList(listMeta("7", "c", varint(4, 3)), text(2, "a"), text(2, "")), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		r := framing.NewListReader(framing.Protobuf, &uneven{body, rand.New(rand.NewPCG(seed, 0))})
		var items [][]byte
		var err error
		for {
			var item []byte
			if item, err = r.Next(); err != nil {
				break
			}
			items = append(items, bytes.Clone(item))
		}
		meta, want, ok := protobufListTwin(body)
		if (err == io.EOF) != ok {
			t.Fatalf("ended with %v, but the twin says ok=%v", err, ok)
		}
		if !ok {
			return
		}
		if !slices.EqualFunc(items, want, bytes.Equal) {
			t.Fatalf("items %q, want %q", items, want)
		}
		if got, err := r.Metadata(); err != nil || got != meta {
			t.Fatalf("metadata %+v, %v, want %+v", got, err, meta)
		}
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

// FuzzProtobufListForm: a list that is assembled from the items of a list equals that list.
func FuzzProtobufListForm(f *testing.F) {
	for _, c := range slices.Concat(asProtobuf.captured(f), asProtobufMetadata.captured(f)) {
		for _, section := range []string{"empty", "list", "page"} {
			f.Add(c.bytes(section))
		}
	}
	s := framing.NewScanner(framing.Protobuf, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
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
