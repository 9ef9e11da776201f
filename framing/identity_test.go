package framing_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/framing"
)

// identityForms are the captured lists of two encodings.
var identityForms = map[framing.Encoding]func(testing.TB) []captured{
	framing.JSON: readTestdata,
	framing.Protobuf: func(t testing.TB) []captured {
		return slices.Concat(asProtobuf.captured(t), asProtobufMetadata.captured(t))
	},
}

// identityItems returns the items of a list.
func identityItems(t testing.TB, e framing.Encoding, list []byte) (items [][]byte) {
	t.Helper()
	r := framing.NewListReader(e, bytes.NewReader(list))
	for {
		item, err := r.Next()
		if err == io.EOF {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, bytes.Clone(item))
	}
}

// identifies reports whether an identity has an object's key and resourceVersion.
func identifies(id framing.Identity, o *framing.Object) bool {
	return string(id.AppendKey(nil)) == o.Key && id.ResourceVersion == o.ResourceVersion
}

func identityText(id framing.Identity) string {
	return fmt.Sprintf("%s/%s at %d, uid %s", id.Namespace, id.Name, id.ResourceVersion, id.UID)
}

// The identity of each captured object is what a Scanner reads of the whole object.
func TestIdentityOfCaptures(t *testing.T) {
	for e, captures := range identityForms {
		ids, whole, n := framing.NewIdentityScanner(e), framing.NewScanner(e, nil), 0
		for _, c := range captures(t) {
			for _, item := range identityItems(t, e, c.bytes("list")) {
				id, err := ids.Item(item)
				if err != nil {
					t.Fatal(err)
				}
				o, err := whole.Item(item, []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				n++
				if !identifies(id, o) || string(id.Namespace) != o.Namespace || len(id.UID) != 36 {
					t.Errorf("got %s, want %s at %d", identityText(id), o.Key, o.ResourceVersion)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: no captured items", e)
		}
	}
}

func TestIdentityOfBadItems(t *testing.T) {
	rv := text(6, "7")
	for name, item := range map[string][]byte{
		"nothing":                 {},
		"no metadata":             message(2, text(1, "x")),
		"no name":                 message(1, rv),
		"no resourceVersion":      message(1, text(1, "x")),
		"two resourceVersions":    message(1, text(1, "x"), rv, rv),
		"resourceVersion 0":       message(1, text(1, "x"), text(6, "0")),
		"name is a number":        message(1, varint(1, 5), rv),
		"uid is a number":         message(1, text(1, "x"), varint(5, 5), rv),
		"metadata ends too early": message(1, text(1, "x"), rv)[:6],
	} {
		if id, err := framing.NewIdentityScanner(framing.Protobuf).Item(item); err == nil {
			t.Errorf("%s: got %+v", name, id)
		}
	}
	if id, err := framing.NewIdentityScanner(framing.JSON).Item([]byte(`{"metadata":{"name":"x"}}`)); err == nil {
		t.Errorf("no resourceVersion in JSON: got %+v", id)
	}
}

// Identities in protobuf cost no allocation.
func TestIdentityAllocs(t *testing.T) {
	item := message(1, text(1, "x"), text(3, "ns"), text(5, "u"), text(6, "7"), message(11, text(1, "a"), text(2, "b")))
	s, key := framing.NewIdentityScanner(framing.Protobuf), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		id, err := s.Item(item)
		if key = id.AppendKey(key[:0]); err != nil || string(key) != "ns/x" {
			t.Fatalf("got %s, %v", key, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever Kubernetes' own decoder reads of an item's metadata is the identity, unless the item is
// refused. Items that a Scanner takes are not refused.
func FuzzIdentity(f *testing.F) {
	for e, captures := range identityForms {
		for _, c := range captures(f) {
			for _, item := range identityItems(f, e, c.bytes("list")) {
				f.Add(item, e == framing.Protobuf)
			}
		}
	}
	f.Add(message(1, text(1, "x"), text(5, "u"), text(5, "v"), text(6, "7"), text(1, "y")), true)
	f.Fuzz(func(t *testing.T, item []byte, protobuf bool) {
		e := framing.JSON
		if protobuf {
			e = framing.Protobuf
		}
		o, refused := framing.NewScanner(e, nil).Item(item, nil)
		id, err := framing.NewIdentityScanner(e).Item(item)
		if refused == nil && (err != nil || !identifies(id, o)) {
			t.Fatalf("got %s, %v, want %s at %d", identityText(id), err, o.Key, o.ResourceVersion)
		}
		var whole metav1.PartialObjectMetadata
		if err != nil || !protobuf || whole.Unmarshal(item) != nil {
			return
		}
		if string(id.Name) != whole.Name || string(id.Namespace) != whole.Namespace || string(id.UID) != string(whole.UID) {
			t.Fatalf("got %s, want %s/%s, uid %s", identityText(id), whole.Namespace, whole.Name, whole.UID)
		}
	})
}
