package framing_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/framing"
)

func identityText(id framing.Identity) string {
	return fmt.Sprintf("%s/%s at %d, uid %s", id.Namespace, id.Name, id.ResourceVersion, id.UID)
}

// An item of a list that can't be read is refused, whether its identity or all of it is asked for.
func TestBadItems(t *testing.T) {
	name, rv := text(1, "x"), text(6, "7")
	metadata := cborMap("name", "x", "resourceVersion", "7")
	for e, items := range map[framing.Encoding][][]byte{
		framing.JSON: {{}, []byte(`{"metadata":{"name":"x"}}`), []byte(`{"metadata":{"name":"x","resourceVersion":"7"}}{}`)},
		framing.Protobuf: {{}, message(2, name), message(1, rv), message(1, name), message(1, name, rv, rv), message(1, name, text(6, "0")),
			message(1, varint(1, 5), rv), message(1, name, varint(5, 5), rv), message(1, name, rv)[:6]},
		framing.CBOR: {{}, encodeCBOR("x"), cborMap("metadata", metadata, "kind", "Pod"), append(cborMap("metadata", metadata), 0)},
	} {
		for _, item := range items {
			_, err := framing.NewScanner(e, nil).Identity(item)
			wantError(t, item, err, "read list item: ", "")
			_, err = framing.NewScanner(e, podFields).Item(item, nil)
			wantError(t, item, err, "read list item: ", "")
		}
	}
}

// Identities in protobuf cost no allocation.
func TestIdentityAllocs(t *testing.T) {
	item := message(1, text(1, "x"), text(3, "ns"), text(5, "u"), text(6, "7"), message(11, text(1, "a"), text(2, "b")))
	s, key := framing.NewScanner(framing.Protobuf, nil), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		id, err := s.Identity(item)
		if key = id.AppendKey(key[:0]); err != nil || string(key) != "ns/x" {
			t.Fatalf("got %s, %v", key, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The hash of the uid is known after each scan, and stays with the object's other events. Whatever
// Kubernetes' own decoder reads of an item's metadata is the identity, unless the item is refused. Items
// that a Scanner takes are not refused.
func FuzzIdentity(f *testing.F) {
	for _, c := range slices.Concat(asJSON.captured(f), asProtobuf.captured(f), asProtobufMetadata.captured(f)) {
		items, _, _ := readItems(c.encoding, bytes.NewReader(c.bytes("list")))
		for _, item := range items {
			f.Add(item, c.encoding == framing.Protobuf)
		}
	}
	const head = `{"kind":"A","metadata":{"name":"x","resourceVersion":"7"`
	for _, uid := range []string{``, `,"uid":null`, `,"uid":"u"`, `,"uid":"\u0075\n"`} {
		f.Add([]byte(head+uid+"}}"), false)
	}
	f.Add(message(1, text(1, "x"), text(6, "7")), true)
	f.Add(message(1, text(1, "x"), text(5, "u"), text(5, "v"), text(6, "7"), text(1, "y")), true)
	f.Fuzz(func(t *testing.T, item []byte, protobuf bool) {
		e := framing.JSON
		if protobuf {
			e = framing.Protobuf
		}
		o, refused := framing.NewScanner(e, nil).Item(item, nil)
		id, err := framing.NewScanner(e, nil).Identity(item)
		if refused == nil {
			if err != nil || string(id.AppendKey(nil)) != o.Key || id.ResourceVersion != o.ResourceVersion {
				t.Fatalf("got %s, %v, want %s at %d", identityText(id), err, o.Key, o.ResourceVersion)
			}
			for _, same := range []*framing.Object{o, o.As(framing.Modified), o.Deleted(o.ResourceVersion + 1)} {
				if got, want := same.UIDHash(), framing.HashOf(id.UID); got != want {
					t.Fatalf("the hash of %q is %x, want %x", id.UID, got, want)
				}
			}
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
