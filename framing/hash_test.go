package framing_test

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/framing"
)

// The hash is kube-apiserver's.
func TestHashOf(t *testing.T) {
	for _, value := range []string{"", "a", "default", "6b1d9f3c-5b0e-4a57-9d0e-0a5f9c1e7b42", "ä\x00\xff", "kube-system"} {
		want, err := strconv.ParseUint(sharding.HashField(value), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if s, b := framing.HashOf(value), framing.HashOf([]byte(value)); s != want || b != want {
			t.Errorf("%q: got %x and %x, want %x", value, s, b, want)
		}
	}
}

// The hash of an object's uid is known after each scan, and stays with the object's other events.
func TestUIDHash(t *testing.T) {
	for e, captures := range identityForms {
		s, ids, n := framing.NewScanner(e, nil), framing.NewIdentityScanner(e), 0
		for _, c := range captures(t) {
			for _, item := range identityItems(t, e, c.bytes("list")) {
				o, err := s.Item(item, []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				id, err := ids.Item(item)
				if err != nil {
					t.Fatal(err)
				}
				n++
				want := framing.HashOf(id.UID)
				for _, same := range []*framing.Object{o, o.As(framing.Modified), o.Deleted(o.ResourceVersion + 1)} {
					if got := same.UIDHash(); got != want || len(id.UID) != 36 {
						t.Errorf("%s: got %x, want that of %q, %x", o.Key, got, id.UID, want)
					}
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: no captured items", e)
		}
	}
}

func TestUIDHashOfOthers(t *testing.T) {
	nothing := framing.HashOf("")
	f := func(e framing.Encoding, item []byte, want uint64) {
		t.Helper()
		o, err := framing.NewScanner(e, nil).Item(item, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.UIDHash(); got != want {
			t.Errorf("%s: %q: got %x, want %x", e, item, got, want)
		}
	}
	const json = `{"kind":"A","metadata":{"name":"x","resourceVersion":"7"`
	f(framing.JSON, []byte(json+`}}`), nothing)
	f(framing.JSON, []byte(json+`,"uid":null}}`), nothing)
	f(framing.JSON, []byte(json+`,"uid":"u"}}`), framing.HashOf("u"))
	f(framing.JSON, []byte(json+`,"uid":"\u0075\n"}}`), framing.HashOf("u\n"))
	cbor := func(metadata ...any) []byte {
		return cborMap("apiVersion", "v1", "kind", "A", "metadata", cborMap(metadata...))
	}
	f(framing.CBOR, cbor("name", "x", "resourceVersion", "7"), nothing)
	f(framing.CBOR, cbor("name", "x", "resourceVersion", "7", "uid", "u"), framing.HashOf("u"))
	f(framing.Protobuf, message(1, text(1, "x"), text(6, "7")), nothing)
	f(framing.Protobuf, message(1, text(1, "x"), text(5, "u"), text(6, "7")), framing.HashOf("u"))
}

// Lists of shards name their selector, except for lists of metadata and of custom resources.
func TestShardInfo(t *testing.T) {
	const shard = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	f := func(e framing.Encoding, empty string, m framing.ListMeta, want string) {
		t.Helper()
		form, _, err := framing.ParseListForm(e, []byte(empty))
		if err != nil {
			t.Fatal(err)
		}
		m.ShardSelector = shard
		head, tail := form.Envelope(m, 0, 0)
		if got := string(head) + string(tail); e == framing.CBOR && !sameBytes(t, []byte(got), []byte(want)) ||
			e != framing.CBOR && got != want {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
	seven := framing.ListMeta{ResourceVersion: 7}
	page := framing.ListMeta{ResourceVersion: 7, Continue: "c", RemainingItemCount: 3}
	const pods = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"`
	f(framing.JSON, pods+`},"items":[]}`+"\n", seven, pods+`,"shardInfo":{"selector":"`+shard+`"}},"items":[]}`+"\n")
	f(framing.JSON, pods+`},"items":[]}`+"\n", page,
		pods+`,"continue":"c","remainingItemCount":3,"shardInfo":{"selector":"`+shard+`"}},"items":[]}`+"\n")
	for _, same := range []string{
		`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},` +
			`"items":null}` + "\n",
		`{"apiVersion":"ex.io/v1","items":[],"kind":"FooList","metadata":{"continue":"","resourceVersion":"7"}}` + "\n",
	} {
		f(framing.JSON, same, seven, same)
	}
	f(framing.Protobuf, string(protobufList(listMeta("7", ""))), page,
		string(protobufList(listMeta("7", "c", varint(4, 3), message(5, text(1, shard))))))
	f(framing.CBOR, string(cborPodList(cborMap("resourceVersion", "7"), []any{})), page,
		string(cborPodList(cborMap("resourceVersion", "7", "continue", "c", "remainingItemCount", 3,
			"shardInfo", cborMap("selector", shard)), []any{})))
}
