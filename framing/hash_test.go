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

// Lists of shards name their selector, except for lists of metadata and of custom resources.
func TestShardInfo(t *testing.T) {
	const shard = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	f := func(e framing.Encoding, empty string, m framing.ListMeta, want string) {
		t.Helper()
		m.ShardSelector = shard
		checkEnvelope(t, e, []byte(empty), m, 0, nil, []byte(want))
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
