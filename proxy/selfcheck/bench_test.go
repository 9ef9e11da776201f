package selfcheck

import (
	"fmt"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// BenchmarkDigest is the digest of a lane's 100,000 objects, which is a lane's own part of a
// comparison, and of as many listed ones in protobuf, which is the list's.
func BenchmarkDigest(b *testing.B) {
	const objects = 100_000
	for _, e := range []framing.Encoding{framing.Protobuf, framing.JSON} {
		b.Run("side=lane/encoding="+e.String(), func(b *testing.B) {
			s, all := framing.NewScanner(e, nil), make([]*framing.Object, objects)
			for i := range all {
				o, err := s.Item(benchItem(e, i), []byte("x"))
				if err != nil {
					b.Fatal(err)
				}
				all[i] = o
			}
			c := fanout.NewCache(fanout.Limits{HistoryEvents: 10, HistoryBytes: 1 << 20}, fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet())))
			if _, err := c.Replace(all, objects, time.Now()); err != nil {
				b.Fatal(err)
			}
			x, snapshot := &list{pages: []page{{}}}, c.Snapshot()
			for b.Loop() {
				if d, _ := x.firstDifferent(snapshot); d.objects != objects {
					b.Fatalf("%d objects", d.objects)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
		})
	}
	b.Run("side=list/encoding=protobuf", func(b *testing.B) {
		s, h, key := framing.NewIdentityScanner(framing.Protobuf), &hasher{}, []byte(nil)
		item := benchItem(framing.Protobuf, 7)
		var sum digest
		for b.Loop() {
			id, err := s.Item(item)
			if err != nil {
				b.Fatal(err)
			}
			key = id.AppendKey(key[:0])
			sum.add(hash(h, key, id.UID, id.ResourceVersion))
		}
	})
}

// benchItem is the i-th object, with the metadata of a small pod.
func benchItem(e framing.Encoding, i int) []byte {
	name, uid := fmt.Sprintf("service-%06d-7c5ddbdf54-x2x4j", i), fmt.Sprintf("0b6a1f1e-9d3c-4c7e-8f0a-%012x", i)
	rv := fmt.Sprint(i + 1)
	if e == framing.JSON {
		return fmt.Appendf(nil, `{"metadata":{"name":%q,"generateName":"service-7c5ddbdf54-","namespace":"team-00",`+
			`"uid":%q,"resourceVersion":%q}}`, name, uid, rv)
	}
	var metadata []byte
	for number, text := range map[protowire.Number]string{1: name, 2: "service-7c5ddbdf54-", 3: "team-00", 5: uid, 6: rv} {
		metadata = protowire.AppendString(protowire.AppendTag(metadata, number, protowire.BytesType), text)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), metadata)
}
