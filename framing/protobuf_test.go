package framing_test

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/framing"
)

// text is a field that holds a string.
func text(number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
}

// message is a field that holds a message of these fields.
func message(number protowire.Number, fields ...[]byte) []byte {
	return text(number, string(slices.Concat(fields...)))
}

func varint(number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
}

// unknown is a complete object of these fields.
func unknown(fields ...[]byte) []byte {
	return slices.Concat([]byte("k8s\x00"), message(1, text(1, "v1"), text(2, "Pod")), message(2, fields...),
		text(3, ""), text(4, ""))
}

// protobufEvent is an event with an object of these fields, as an EventReader returns it.
func protobufEvent(t testing.TB, typ string, fields ...[]byte) []byte {
	return encodeEvent(t, typ, unknown(fields...))[4:]
}

func scanProtobuf(t testing.TB, event []byte) framing.Event {
	return scanAs(t, framing.Protobuf, event)
}

// The bytes of the package comment.
func TestProtobufBytes(t *testing.T) {
	const pod = "\x0a\x06" + "\x0a\x01x" + "\x32\x017"
	const event = "\x0a\x05ADDED" + "\x12\x1f\x0a\x1d" + "k8s\x00" + "\x0a\x09\x0a\x02v1\x12\x03Pod" + "\x12\x08" +
		pod + "\x1a\x00\x22\x00"
	const list = "k8s\x00" + "\x0a\x0d\x0a\x02v1\x12\x07PodList" + "\x12\x13" + "\x0a\x07\x0a\x00\x12\x017\x1a\x00" +
		"\x12\x08" + pod + "\x1a\x00\x22\x00"
	o := scanProtobuf(t, []byte(event)).Object
	if got, want := string(o.Frame(framing.Added).Body), "2c\r\n\x00\x00\x00\x28"+event+"\r\n"; got != want {
		t.Errorf("frame %q\nwant %q", got, want)
	}
	empty := slices.Concat([]byte(list[:19]), []byte("\x12\x09"), []byte(list[21:30]), []byte(list[len(list)-4:]))
	form, meta, err := framing.ParseListForm(framing.Protobuf, empty)
	if err != nil {
		t.Fatal(err)
	}
	if got := assemble(form, meta, []*framing.Object{o}); string(got) != list {
		t.Errorf("list %q\nwant %q", got, list)
	}
}

// Input that could not be sent on unchanged is an error, which gives the place.
func TestProtobufErrors(t *testing.T) {
	f := eventErrors[[]byte](t, framing.Protobuf)
	metadata := message(1, text(1, "x"), text(6, "7"))
	object := func(fields ...[]byte) []byte { return protobufEvent(t, "ADDED", fields...) }
	around := func(object []byte) []byte {
		return slices.Concat(text(1, "ADDED"), message(2, text(1, string(object))))
	}
	typeMeta := message(1, text(1, "v1"), text(2, "Pod"))
	magic, end := []byte("k8s\x00"), []byte("\x1a\x00\x22\x00")

	f(nil, "byte 0: message ends, expected tag 0a")
	f([]byte{0x0a}, "byte 1: unexpected EOF")
	f([]byte{0x0a, 9, 'A'}, "byte 1: length 9 ends past the message")
	f([]byte{0x0a, 0x81, 0x00, 'A'}, "byte 1: length 1 takes 2 bytes")
	f([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "variable length integer overflow")
	f([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"byte 1: length 18446744073709551615 ends past the message")
	f(text(1, "ADDED"), "byte 7: message ends, expected tag 12")
	f(message(2, text(1, "")), "byte 0: found tag 12, expected 0a")
	f(slices.Concat(text(1, "ADDED"), varint(2, 1)), "byte 7: found tag 10, expected 12")
	f(slices.Concat(object(metadata), []byte{0}), "message continues")
	f(slices.Concat(text(1, "ADDED"), message(2, text(1, string(unknown(metadata))), text(2, ""))), "message continues")
	f(around(nil), "byte 11: no k8s\\0 before the object")
	f(around(slices.Concat(magic, message(1, text(1, "v1")), message(2, metadata), end)),
		"message ends, expected tag 12")
	f(around(slices.Concat(magic, message(1, text(1, "v1"), text(2, "Pod"), text(3, "")), message(2, metadata), end)),
		"message continues")
	f(around(slices.Concat(magic, typeMeta, end)), "found tag 1a, expected 12")
	f(around(slices.Concat(magic, typeMeta, message(2, metadata), []byte("\x1a\x00"))),
		"found 1a 00 after the object, expected 1a 00 22 00")
	f(around(slices.Concat(magic, typeMeta, message(2, metadata), text(3, "gzip"), text(4, ""))),
		"found 1a 04 67 7a 69 70 22 00 after the object")
	f(protobufEvent(t, "MOVED", metadata), `unknown type "MOVED"`)

	f(object(), "byte 28: message ends, expected tag 0a")
	f(object(text(2, "spec"), metadata), "byte 28: found tag 12, expected 0a")
	f(object(metadata, metadata), "byte 36: metadata is not first")
	f(object(metadata, []byte{0x12, 9}), "byte 36: length 9 ends past the message")
	f(object(metadata, []byte{0x00}), "invalid field number")
	f(object(metadata, []byte{0x12}), "byte 36: unexpected EOF")
	f(object(metadata, []byte{0x17}), "cannot parse reserved wire type")
	f(object(metadata, []byte{0x14}), "mismatching end group marker")
	f(object(metadata, varint(2, 1)), "byte 36: field 2: wrong wire type")
	f(object(metadata, message(2, []byte{10<<3 | 1, 0, 0, 0, 0, 0, 0, 0, 0})), "byte 38: field 10: wrong wire type")
	f(object(metadata, message(2, []byte{10<<3 | 2, 5})), "byte 38: length 5 ends past the message")

	f(object(message(1)), "ADDED: object without metadata.name")
	f(object(message(1, text(1, "x"))), "ADDED: object without metadata.resourceVersion")
	f(object(message(1, varint(1, 1))), "byte 30: field 1: wrong wire type")
	f(object(message(1, text(1, "x"), varint(6, 7))), "byte 33: field 6: wrong wire type")
	f(object(message(1, text(1, "x"), varint(11, 7))), "byte 33: field 11: wrong wire type")
	f(object(message(1, text(1, "x"), message(11, varint(1, 7)))), "byte 35: field 1: wrong wire type")
	for _, rv := range []string{"", "0", "-5", "x", "18446744073709551616", strings.Repeat("0", 130) + "7"} {
		f(object(message(1, text(1, "x"), text(6, rv))), `byte `)
		f(object(message(1, text(1, "x"), text(6, rv))), `: resourceVersion "`)
	}
	f(object(message(1, text(1, "x"), text(6, "7"), text(6, "8"))), `byte 36: resourceVersion "8"`)
	f(object(message(1, text(1, "x"), []byte{6<<3 | 2, 0x81, 0x00, '7'})), `byte 33: resourceVersion "7"`)
	f(protobufEvent(t, "BOOKMARK", message(1)), "BOOKMARK without resourceVersion")
	f(protobufEvent(t, "BOOKMARK", text(2, "")), "BOOKMARK: byte 31: found tag 12")
	mark := message(12, text(1, framing.InitialEventsEnd), text(2, "true"))
	f(protobufEvent(t, "BOOKMARK", message(1, text(6, "7"), mark, mark)), "second "+framing.InitialEventsEnd)
	f(protobufEvent(t, "ERROR", text(6, "410")), "ERROR: proto: wrong wireType = 2 for field Code")
	f(protobufEvent(t, "ERROR", varint(5, 410)), "ERROR: proto: wrong wireType = 0 for field Details")
}

// protobufTwin is an event as apimachinery's own types read it.
type protobufTwin struct {
	typ      string
	unknown  runtime.Unknown
	metadata metav1.ObjectMeta
	rest     []byte // of the object after its metadata
	// canonical says that kube-apiserver could have written it.
	canonical bool
}

func protobufTwinOf(event []byte) (tw protobufTwin, ok bool) {
	var ev metav1.WatchEvent
	if ev.Unmarshal(event) != nil || len(ev.Object.Raw) < 4 || string(ev.Object.Raw[:4]) != "k8s\x00" {
		return tw, false
	}
	tw.typ = ev.Type
	again, err := ev.Marshal()
	tw.canonical = err == nil && bytes.Equal(again, event)
	if tw.unknown.Unmarshal(ev.Object.Raw[4:]) != nil {
		return tw, false
	}
	again, err = tw.unknown.Marshal()
	tw.canonical = tw.canonical && err == nil && bytes.Equal(again, ev.Object.Raw[4:]) &&
		tw.unknown.ContentEncoding == "" && tw.unknown.ContentType == "" && tw.unknown.Raw != nil
	if tw.typ == "ERROR" {
		return tw, true
	}
	number, typ, n := protowire.ConsumeField(tw.unknown.Raw)
	if n < 0 || number != 1 || typ != protowire.BytesType {
		return tw, false
	}
	var object metav1.PartialObjectMetadata
	if object.Unmarshal(tw.unknown.Raw[:n]) != nil {
		return tw, false
	}
	tw.metadata, tw.rest = object.ObjectMeta, tw.unknown.Raw[n:]
	again, err = object.Marshal()
	tw.canonical = tw.canonical && err == nil && bytes.Equal(again, tw.unknown.Raw[:n])
	return tw, true
}

// twin is what the event's parts say.
func (tw protobufTwin) twin(fields []framing.Field) twin {
	m := tw.metadata
	t := twin{typ: tw.typ, namespace: m.Namespace, name: m.Name, uid: string(m.UID), labels: maps.Clone(m.Labels)}
	if t.typ == "ERROR" {
		var status metav1.Status
		_ = status.Unmarshal(tw.unknown.Raw)
		t.message = status.Message
		return t
	}
	if rv, err := strconv.ParseUint(m.ResourceVersion, 10, 64); err == nil {
		t.rv = rv
	}
	if mark, marked := m.Annotations[framing.InitialEventsEnd]; marked && t.typ == "BOOKMARK" {
		t.end = mark == "true"
		if delete(m.Annotations, framing.InitialEventsEnd); len(m.Annotations) == 0 {
			m.Annotations = nil
		}
	}
	for _, f := range fields {
		value := f.Default
		for _, path := range f.Numbers {
			if v := fieldText(tw.rest, path, f); v != "" {
				value = v
				break
			}
		}
		t.fields = append(t.fields, value)
	}
	m.ResourceVersion = ""
	t.object = []any{tw.unknown.TypeMeta, m, tw.rest}
	return t
}

// numbered returns the first field of that number in b, as a protowire decoder sees it.
func numbered(b []byte, number protowire.Number) (typ protowire.Type, value []byte) {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeField(b)
		if size < 0 {
			return -1, nil
		}
		_, _, tag := protowire.ConsumeTag(b)
		if n == number {
			return typ, b[tag:size]
		}
		b = b[size:]
	}
	return -1, nil
}

// fieldText is the value at a path; "" if there is none.
func fieldText(b []byte, path []int32, field framing.Field) string {
	typ, value := numbered(b, protowire.Number(path[0]))
	switch typ {
	case protowire.BytesType:
		content, _ := protowire.ConsumeBytes(value)
		if len(path) > 1 {
			return fieldText(content, path[1:], field)
		}
		return string(content)
	case protowire.VarintType:
		v, _ := protowire.ConsumeVarint(value)
		if field.Default == "false" {
			return strconv.FormatBool(v != 0)
		}
		return strconv.FormatInt(int64(v), 10)
	}
	return ""
}

// FuzzProtobufEvent compares with apimachinery's types, and sets another resourceVersion.
func FuzzProtobufEvent(f *testing.F) {
	seedEvents(f, asProtobuf, asProtobufMetadata)
	f.Add(protobufEvent(f, "ADDED", message(1, text(1, "x"), text(6, "7"))), uint64(1))
	f.Add(protobufEvent(f, "ADDED", message(1, text(1, "x"), text(6, "7")), nestedMessages(2, 100),
		nestedGroups(9, 100)), uint64(1))
	f.Add(protobufEvent(f, "BOOKMARK",
		message(1, text(6, "007"), message(12, text(1, framing.InitialEventsEnd), text(2, "true")))), uint64(1<<64-1))
	f.Add(protobufEvent(f, "DELETED", message(1, text(1, "x"), text(3, "n"), text(6, "7"), message(11, text(1, "a"))),
		message(2, text(10, "n1"), varint(11, 1)), message(3, message(12, text(1, "1")), text(6, "2"))), uint64(100))
	rv := text(6, "7")
	label := func(key, value string) []byte { return message(11, text(1, key), text(2, value)) }
	for _, metadata := range [][]byte{
		message(1, text(1, "x"), text(3, "a"), rv), message(1, rv, text(3, "a"), varint(99, 1), text(1, "x")),
		message(1, text(1, "x"), rv, label("a", "1"), label("b", "")), message(1, text(1, "x"), rv, message(11, text(1, "a"))),
		message(1, text(1, "x"), rv, message(12, text(1, "a"), text(2, "1"))), // an annotation
		message(1, text(1, "x"), rv, message(13, text(1, "v1"), text(3, "other"), text(6, "9"))),
	} {
		f.Add(protobufEvent(f, "ADDED", metadata), uint64(1))
	}
	for _, object := range [][]byte{
		message(2), message(3), slices.Concat(message(2, text(10, "n1"), varint(11, 1))), message(2, text(10, ""), varint(11, 0)),
		message(2, varint(11, 2)), message(3, text(6, "1"), message(12, text(1, "2")), message(12, text(1, "3"))),
		message(3, message(12, text(1, "")), message(12, text(1, "3")), text(6, "1")), message(3, text(6, "1"), text(1, "a/b")),
		slices.Concat(message(4, varint(1, 42)), text(5, "Opaque")), message(4, varint(1, 1<<64-5)),
		slices.Concat(message(2, text(5, "inner")), text(5, "Opaque")),
		slices.Concat(message(99, text(5, "inner")), varint(98, 1), protowire.AppendFixed64(protowire.AppendTag(nil, 97, protowire.Fixed64Type), 1)),
		slices.Concat(message(2, text(3, "r"), text(10, "other"), varint(11, 1)), message(3, text(1, "p"), text(6, "i"), message(12, text(1, "j"))),
			message(4, varint(1, 9)), text(5, "T")),
	} {
		f.Add(protobufEvent(f, "ADDED", message(1, text(1, "n"), rv), object), uint64(1))
	}
	// The annotation is cut out from any place among others. The rest is near the size at which a length needs one more byte.
	annotation := func(key string) []byte { return message(12, text(1, key), text(2, "true")) }
	end, rest := annotation(framing.InitialEventsEnd), message(2, text(10, strings.Repeat("x", 100)))
	for _, metadata := range [][][]byte{
		{rv, end}, {end, rv}, {text(1, ""), text(3, ""), rv, varint(7, 0), end}, {rv, annotation("a"), end, annotation("z")},
		{annotation("a"), end, annotation("z"), rv}, {rv, text(2, strings.Repeat("x", 90)), end},
	} {
		for _, at := range []uint64{7, 12345678901234567890} {
			f.Add(protobufEvent(f, "BOOKMARK", message(1, metadata...), rest), at)
		}
	}
	fields := append(slices.Clone(podFields), framing.Field{Label: "none", Default: "d"},
		framing.Field{Label: "count", Numbers: [][]int32{{4, 1}}, Default: "0"}, framing.Field{Label: "type", Numbers: [][]int32{{5}}})
	s := framing.NewScanner(framing.Protobuf, fields)
	fieldless := framing.NewScanner(framing.Protobuf, nil)
	decode := func(event []byte) (twin, bool) {
		p, ok := protobufTwinOf(event)
		return p.twin(fields), ok
	}
	f.Fuzz(func(t *testing.T, event []byte, rv uint64) {
		tw, ok := protobufTwinOf(event)
		if _, err := fieldless.Event(event); err != nil && ok && tw.canonical && tw.acceptable() {
			t.Fatalf("refused: %v", err)
		}
		if ev, err := s.Event(event); err == nil {
			checkTwin(t, framing.Protobuf, s, event, ev, rv, decode)
		}
	})
}

// acceptable reports whether a canonical event holds everything that the scanner needs.
func (tw protobufTwin) acceptable() bool {
	switch tw.typ {
	case "ERROR":
		var status metav1.Status
		if status.Unmarshal(tw.unknown.Raw) != nil {
			return false
		}
		again, err := status.Marshal()
		return err == nil && bytes.Equal(again, tw.unknown.Raw)
	case "BOOKMARK":
	case "ADDED", "MODIFIED", "DELETED":
		if tw.metadata.Name == "" {
			return false
		}
	default:
		return false
	}
	rv, err := strconv.ParseUint(tw.metadata.ResourceVersion, 10, 64)
	if err != nil || rv == 0 || len(tw.metadata.ResourceVersion) > 127 {
		return false
	}
	for b := tw.rest; len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 || number == 1 {
			return false
		}
		b = b[n:]
	}
	return true
}
