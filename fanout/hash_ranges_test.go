package fanout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// half is the lower half of all hashes, and rest the upper one.
var (
	half = fanout.HashRange{Last: math.MaxUint64 / 2}
	rest = fanout.HashRange{First: math.MaxUint64/2 + 1, Last: math.MaxUint64}
)

// shard returns the selector of a shard of s, and its twin in k8s.io/apimachinery.
func (s selector) shard(field fanout.HashedField, ranges ...fanout.HashRange) selector {
	key := map[fanout.HashedField]string{fanout.HashedUID: "object.metadata.uid",
		fanout.HashedNamespace: "object.metadata.namespace"}[field]
	var requirements []sharding.ShardRangeRequirement
	for _, r := range ranges {
		end := "0x10000000000000000"
		if r.Last < math.MaxUint64 {
			end = fmt.Sprintf("0x%016x", r.Last+1)
		}
		requirements = append(requirements, sharding.ShardRangeRequirement{
			Key: key, Start: fmt.Sprintf("0x%016x", r.First), End: end})
	}
	s.part, s.shards = fanout.NewHashRanges(field, ranges), sharding.NewSelector(requirements...)
	return s
}

// nth returns the selector of the nth of equal shards of s, by uid.
func nth(s selector, n, shards int) selector {
	width := math.MaxUint64/uint64(shards) + 1
	if shards == 1 {
		return s
	}
	r := fanout.HashRange{First: uint64(n) * width, Last: math.MaxUint64}
	if n < shards-1 {
		r.Last = uint64(n+1)*width - 1
	}
	return s.shard(fanout.HashedUID, r)
}

// inShard reports whether the twin of a shard has the thing.
func (s selector) inShard(o *thing) bool {
	if s.shards == nil {
		return true
	}
	ok, err := s.shards.Matches(&metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(o.uid), Namespace: o.namespace}})
	return err == nil && ok
}

// randomShard draws a shard of one of the two fields. Its ranges may overlap.
func randomShard(rng *rand.Rand, s selector) selector {
	ranges := []fanout.HashRange{half, rest, {First: 0, Last: math.MaxUint64}}[rng.IntN(3):][:1]
	for range rng.IntN(3) {
		// Of a grid, for ranges to be adjacent or equal.
		first, more := rng.Uint64N(16)<<60, rng.Uint64N(8)<<60
		r := fanout.HashRange{First: first, Last: math.MaxUint64}
		if last := first + more + 1<<60 - 1; last > first {
			r.Last = last
		}
		ranges = append(ranges[:len(ranges):len(ranges)], r)
	}
	if rng.IntN(2) == 0 && len(ranges) > 1 {
		ranges = ranges[1:]
	}
	return s.shard(fanout.HashedField(rng.IntN(2)), ranges...)
}

// Each bound of a range is in it, as in k8s.io/apimachinery.
func TestHashRangesBounds(t *testing.T) {
	o := &thing{namespace: "a", name: "x", rv: 1, uid: "d1f0a1a0-3b1f-4c53-8df8-4a1f6b6f0a55"}
	const all = math.MaxUint64
	hash := framing.HashOf(o.uid)
	for _, c := range []struct {
		want   bool
		ranges []fanout.HashRange
	}{
		{true, []fanout.HashRange{{Last: all}}},
		{true, []fanout.HashRange{{First: hash, Last: hash}}},
		{true, []fanout.HashRange{{First: hash, Last: all}}},
		{true, []fanout.HashRange{{Last: hash}}},
		{false, []fanout.HashRange{{First: hash + 1, Last: all}}},
		{false, []fanout.HashRange{{Last: hash - 1}}},
		{false, []fanout.HashRange{{Last: hash - 1}, {First: hash + 1, Last: all}}},
		{true, []fanout.HashRange{{First: hash - 2, Last: hash - 1}, {First: hash, Last: hash + 9}}},
		{hash <= all/2, []fanout.HashRange{half}},
		{hash > all/2, []fanout.HashRange{rest}},
	} {
		s := everything(t).shard(fanout.HashedUID, c.ranges...)
		if got := s.filter(t).Match(object(o)); got != c.want || s.inShard(o) != c.want {
			t.Errorf("%x in %v: got %v, the twin %v, want %v", hash, c.ranges, got, s.inShard(o), c.want)
		}
	}
}

// An event is looked up among the shards: only a few are asked, those that its hash is in among them.
func TestHashRangesAsked(t *testing.T) {
	const shards = 900
	w := newWorld(t, roomy)
	var subs []*fanout.Subscription
	for i := range shards {
		for _, s := range []selector{everything(t), sel(t, "a", "", ""), sel(t, "", "l=1", "")} {
			subs = append(subs, w.subscribe(nth(s, i, shards), fanout.Request{}))
		}
	}
	var asked []string
	w.cache.OnAsk(func(f *fanout.Filter) { asked = append(asked, f.Key()) })
	for i := range 100 {
		asked = nil
		o := named(fmt.Sprint("x", i), "l", "1")
		o.uid = fmt.Sprint("uid", i)
		w.put(o)
		if len(asked) < 3 || len(asked) > 3*(2+shards/256) {
			t.Fatalf("%d of %d filters are asked about an event: %.300q", len(asked), len(subs), asked)
		}
	}
	for _, s := range subs {
		s.Cancel()
	}
	asked = nil
	w.put(named("x", "l", "1"))
	if len(asked) > 0 {
		t.Errorf("%q are asked although they have left", asked)
	}
}

// Whatever joins and leaves, the groups whose ranges have a hash are asked, each once.
func TestHashGroupsModel(t *testing.T) {
	rng := steady.Rand(t)
	var x fanout.Index
	var in []*fanout.Filter
	for range 2000 {
		if len(in) > 30 || len(in) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(in))
			x.Remove(in[i])
			in = append(in[:i], in[i+1:]...)
		} else {
			var ranges []fanout.HashRange
			for range 1 + rng.IntN(4) { // few different ends, so that many meet
				first, n := rng.Uint64N(16), rng.Uint64N(4)
				ranges = append(ranges, fanout.HashRange{First: first << 60, Last: min(first+n, 15)<<60 + 1<<60 - 1})
			}
			f := everything(t).shard(fanout.HashedUID, ranges...).filter(t)
			if x.Add(f) {
				in = append(in, f)
			}
		}
		o := named("x")
		o.uid = fmt.Sprint(rng.Uint64())
		want := make(map[*fanout.Filter]int)
		for _, f := range in {
			if f.Match(object(o.at(1))) {
				want[f] = 1
			}
		}
		got := x.Concerned(&fanout.Change{Type: framing.Added, Object: object(o.at(1)), ResourceVersion: 1})
		for f := range want {
			if got[f] != 1 {
				t.Fatalf("a group with the hash is visited %d times", got[f])
			}
		}
	}
	for _, f := range in {
		x.Remove(f)
	}
	if !x.Empty() {
		t.Error("something is left")
	}
}

// Shards that overlap everywhere cost a bounded time for each event.
func TestHashRangesCrowd(t *testing.T) {
	var x fanout.Index
	rng := rand.New(rand.NewPCG(7, 7))
	const clients = 4 * fanout.MaxScopeCost
	taken := 0
	for range clients {
		a, b := rng.Uint64(), rng.Uint64()
		f := sel(t, "a", "", "").shard(fanout.HashedUID, fanout.HashRange{First: min(a, b), Last: max(a, b)}).filter(t)
		if x.Add(f) {
			taken++
		}
	}
	if taken < fanout.MaxScopeCost-1 || taken == clients || x.Cost("a") > fanout.MaxScopeCost {
		t.Errorf("%d filters of %d are taken in, which cost %d", taken, clients, x.Cost("a"))
	}
	for i := range 100 {
		o, cost := thing{namespace: "a", name: "x", uid: fmt.Sprint(i), rv: 1}, 0
		for f := range x.Concerned(&fanout.Change{Type: framing.Added, Object: object(&o)}) {
			cost += f.Cost()
		}
		if cost > fanout.MaxScopeCost {
			t.Errorf("a change costs %d", cost)
		}
	}
}
