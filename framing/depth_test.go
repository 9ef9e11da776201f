package framing_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/watchfan/watchfan/framing"
)

// deep is the depth of the inputs here, which no real server or client sends. A parser that rereads
// the bytes of each level would need minutes for them. A parser that recurses for each level would
// end the process at a few times this depth.
const deep = 1 << 18

// nestedJSON is n nested levels.
func nestedJSON(open, inner, close string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(close, n)
}

// nestedMessages is a field with a message with such a field, and so on, n levels in all.
func nestedMessages(number protowire.Number, n int) []byte {
	var reversed []byte
	for range n {
		head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(reversed)))
		slices.Reverse(head)
		reversed = append(reversed, head...)
	}
	slices.Reverse(reversed)
	return reversed
}

// nestedGroups is a group within a group, and so on, n levels in all.
func nestedGroups(number protowire.Number, n int) []byte {
	return append(bytes.Repeat(protowire.AppendTag(nil, number, protowire.StartGroupType), n),
		bytes.Repeat(protowire.AppendTag(nil, number, protowire.EndGroupType), n)...)
}

// Objects that nest as deep as kube-apiserver accepts are read, and sent on unchanged. Deeper ones
// are refused with that reason.
func TestDepthJSON(t *testing.T) {
	t.Parallel()
	event := func(where, value string) []byte {
		return []byte(`{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"7"},` +
			strings.Replace(where, "?", value, 1) + "}}\n")
	}
	for i, where := range []string{`"data":?`, `"spec":?`, `"spec":{"nodeName":?}`, `"x":[?]`, `"x":[[1],?]`,
		`"data":{"a":[{},?]}`} {
		for _, brackets := range [][3]string{{"[", "", "]"}, {`{"a":`, "1", "}"}, {`[0,{"a":`, "1", "},0]"}} {
			f := func(n int) error {
				line := event(where, nestedJSON(brackets[0], brackets[1], brackets[2], n))
				ev, err := framing.NewScanner(framing.JSON, podFields).Event(line)
				if err == nil {
					checkFrame(t, where, ev.Object.Frame(framing.Added), line)
					ev.Object.UID()
				}
				return err
			}
			if err := f(4_990); err != nil {
				t.Errorf("%s of %s: %v", where, brackets[0], err)
			}
			for _, n := range []int{10_000, deep} {
				if n == deep && i > 0 {
					continue
				}
				if err := f(n); !errors.Is(err, framing.ErrTooDeep) || len(err.Error()) > 200 {
					t.Errorf("%s of %d %s: error %.300v", where, n, brackets[0], err)
				}
			}
		}
	}
	for n, want := range map[int]error{9_990: nil, 10_000: framing.ErrTooDeep, deep: framing.ErrTooDeep} {
		body := `{"items":[{"a":` + nestedJSON("[", "", "]", n) + `}],"metadata":{"resourceVersion":"7"}}`
		if items, _, err := readItems(framing.JSON, strings.NewReader(body)); !errors.Is(err, want) || err != nil && len(err.Error()) > 200 {
			t.Errorf("a list with %d levels: %d items, error %.300v, want %v", n, len(items), err, want)
		}
	}
}

// Kubernetes' own readers of CBOR accept 64 levels
// (k8s.io/apimachinery/pkg/runtime/serializer/cbor/internal/modes). Here any number is accepted.
func TestDepthCBOR(t *testing.T) {
	t.Parallel()
	values := map[string][]byte{
		"arrays": append(bytes.Repeat([]byte{0x81}, deep), 0),
		"maps":   append(bytes.Repeat([]byte{0xa1, 0x41, 'a'}, deep), 0),
		"tags":   append(bytes.Repeat([]byte{0xc1}, deep), 0),
	}
	metadata := cborMap("name", "x", "resourceVersion", "7")
	pod := func(name string, value []byte) []byte {
		object := append([]byte(selfDescribed), 0xa4)
		object = slices.Concat(object, encodeCBOR("kind"), encodeCBOR("Pod"), encodeCBOR("apiVersion"),
			encodeCBOR("v1"), encodeCBOR("metadata"), metadata)
		return slices.Concat(object, encodeCBOR(name), value)
	}
	event := func(object []byte) []byte {
		return slices.Concat([]byte(selfDescribed), []byte{0xa2}, encodeCBOR("type"), encodeCBOR("ADDED"),
			encodeCBOR("object"), object)
	}
	for name, value := range values {
		for _, where := range []string{"data", "spec"} {
			line := event(pod(where, value))
			read, err := framing.NewEventReader(framing.CBOR, iotest.HalfReader(bytes.NewReader(line))).Next()
			if err != nil || !bytes.Equal(read, line) {
				t.Fatalf("%s in %s: read %d bytes of %d, %v", name, where, len(read), len(line), err)
			}
			if o := scanCBOR(t, line).Object; !bytes.HasSuffix(o.Bytes(), value) || o.UID() != "" {
				t.Errorf("%s in %s are not kept", name, where)
			}
		}
		nodeName := slices.Concat([]byte{0xa1}, encodeCBOR("nodeName"), value)
		if got := scanCBOR(t, event(pod("spec", nodeName))).Object.Fields[0]; got != "" {
			t.Errorf("%s as spec.nodeName: %.20q", name, got)
		}
		list := slices.Concat([]byte(selfDescribed), []byte{0xa2}, encodeCBOR("items"), []byte{0x81}, value, encodeCBOR("metadata"), metadata)
		if items, _, err := readItems(framing.CBOR, bytes.NewReader(list)); len(items) != 1 || err != nil {
			t.Errorf("%s in a list: %d items, %v", name, len(items), err)
		}
	}
	// Indefinite lengths, which kube-apiserver does not write, are refused where they begin.
	for _, head := range []byte{0x5f, 0x7f, 0x9f, 0xbf} {
		value := bytes.Repeat([]byte{head}, deep)
		if _, err := framing.NewEventReader(framing.CBOR,
			bytes.NewReader(event(pod("data", value)))).Next(); err == nil ||
			!strings.Contains(err.Error(), "indefinite") {
			t.Errorf("%x: reader's error %v", head, err)
		}
		if _, err := framing.NewScanner(framing.CBOR, podFields).Event(event(pod("data", value))); err == nil ||
			!strings.Contains(err.Error(), "indefinite") {
			t.Errorf("%x: scanner's error %v", head, err)
		}
	}
}

func TestDepthProtobuf(t *testing.T) {
	t.Parallel()
	metadata := message(1, text(1, "x"), text(6, "7"))
	for _, where := range []protowire.Number{2, 9} { // there are fields within 2
		line := protobufEvent(t, "ADDED", metadata, nestedMessages(where, deep))
		if o := scanProtobuf(t, line).Object; o.Key != "x" || o.UID() != "" {
			t.Errorf("field %d: got key %q", where, o.Key)
		}
		groups := func(n int) error {
			_, err := framing.NewScanner(framing.Protobuf, podFields).
				Event(protobufEvent(t, "ADDED", metadata, nestedGroups(where, n)))
			return err
		}
		if err := groups(5_000); (err == nil) != (where == 9) {
			t.Errorf("field %d, 5,000 groups: %v", where, err)
		}
		if err := groups(deep); err == nil {
			t.Errorf("field %d: %d groups are accepted", where, deep)
		}
	}
	if _, err := framing.NewScanner(framing.Protobuf, podFields).Event(protobufEvent(t, "ADDED",
		nestedMessages(1, deep))); err == nil {
		t.Error("metadata without a name is accepted")
	}
}

// An item of a list may be as large as an event, and endless input is not read forever.
func TestListReaderTooLong(t *testing.T) {
	t.Parallel()
	f := func(size int, want error) {
		t.Helper()
		body := `{"items":[{},"` + strings.Repeat("x", size-2) + `",{}],"metadata":{"resourceVersion":"7"}}`
		if items, _, err := readItems(framing.JSON, strings.NewReader(body)); !errors.Is(err, want) {
			t.Errorf("%d bytes: %d items, error %v, want %v", size, len(items), err, want)
		}
	}
	f(framing.MaxEvent+1, framing.ErrTooLong)
	for _, head := range []string{`{"items":[`, `{"items":["`, `{"x":"`, `{"x":`} {
		r := &padded{head: head}
		if _, _, err := readItems(framing.JSON, r); !errors.Is(err, framing.ErrTooLong) ||
			r.read > 3*framing.MaxEvent {
			t.Errorf("%s and spaces: %d bytes read, error %v", head, r.read, err)
		}
	}
	// Many small items don't count as a large one.
	body := `{"items":[` + strings.Repeat(`{"a":"`+strings.Repeat("x", 1<<20)+`"},`, 20) +
		`{}],"metadata":{"resourceVersion":"7"}}`
	if items, _, err := readItems(framing.JSON, strings.NewReader(body)); len(items) != 21 || err != nil {
		t.Errorf("%d items, error %v", len(items), err)
	}
}

// padded is head and endless spaces.
type padded struct {
	head string
	read int
}

func (r *padded) Read(p []byte) (n int, err error) {
	n = copy(p, r.head)
	r.head = r.head[n:]
	for ; n < len(p); n++ {
		p[n] = ' '
	}
	r.read += n
	return n, nil
}
