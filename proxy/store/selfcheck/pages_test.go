package selfcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// snapshotOf returns a snapshot of objects, given as key, uid and resourceVersion.
func snapshotOf(t *testing.T, texts ...string) fanout.Snapshot {
	t.Helper()
	s := framing.NewScanner(framing.JSON, nil)
	var objects []*framing.Object
	for _, text := range texts {
		key, uid, rv := parse(text)
		item := fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, key, uid, rv)
		o, err := s.Item(item, []byte(""))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	c := fanout.NewCache(fanout.Limits{HistoryEvents: 10, HistoryBytes: 1 << 20}, fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet())))
	if _, err := c.Replace(objects, 1000, time.Now()); err != nil {
		t.Fatal(err)
	}
	return c.Snapshot()
}

func parse(text string) (key, uid string, rv uint64) {
	if _, err := fmt.Sscanf(text, "%s %s %d", &key, &uid, &rv); err != nil {
		panic(err)
	}
	return key, uid, rv
}

// listOf returns a list of objects in pages with these numbers of objects.
func listOf(texts []string, sizes ...int) *list {
	x := &list{rv: 1000}
	for _, n := range sizes {
		p := page{last: x.lastKey()}
		for _, text := range texts[:n] {
			key, uid, rv := parse(text)
			p.digest.add(hash(key, uid, rv))
			p.last = key
		}
		texts = texts[n:]
		x.pages = append(x.pages, p)
	}
	return x
}

// The first page is found that differs, wherever the difference is.
func TestFirstDifferent(t *testing.T) {
	listed := strings.Split("b u 2,c u 3,d u 4,e u 5,f u 6", ",")
	x := listOf(listed, 2, 2, 1)
	f := func(want int, change ...string) {
		t.Helper()
		if got, first := x.firstDifferent(snapshotOf(t, change...)); first != want {
			t.Errorf("%v: got page %d, want %d", change, first, want)
		} else if (got == x.digest()) != (want < 0) || got.objects != len(change) {
			t.Errorf("%v: digest %s of %d", change, got, got.objects)
		}
	}
	with := func(more ...string) []string {
		return slices.Sorted(slices.Values(append(slices.Clone(listed), more...)))
	}
	without := func(i int) []string { return slices.Delete(slices.Clone(listed), i, i+1) }
	for _, sizes := range [][]int{{5}, {1, 1, 1, 1, 1}, {4, 1}, {2, 2, 1}} {
		x = listOf(listed, sizes...)
		f(-1, listed...)
	}
	f(0, with("a u 9")...)
	f(0, with("bb u 9")...)
	f(1, with("cc u 9")...) // behind the last key of page 0
	f(1, with("dd u 9")...)
	f(2, with("ee u 9")...)
	f(2, with("g u 9")...)
	for i := range listed {
		f(i/2, without(i)...)
	}
	f(0)
	x = listOf(nil, 0)
	f(-1)
	f(0, "a u 1")
}

// The first differences of a range of keys are named, and nothing outside it.
func TestDiffering(t *testing.T) {
	held := strings.Split("a u 1,b u 2,c u 3,d u 4,e u 5,f u 6", ",")
	f := func(after, upTo, lists string, want ...string) {
		t.Helper()
		var there []listed
		for text := range strings.SplitSeq(lists, ",") {
			if text != "" {
				key, uid, rv := parse(text)
				there = append(there, listed{key, uid, rv})
			}
		}
		if named := differing(snapshotOf(t, held...), after, upTo, there); !slices.Equal(named, want) {
			t.Errorf("%q to %q, listed %s: got %q, want %q", after, upTo, lists, named, want)
		}
	}
	const extra = ": kube-apiserver does not have it"
	f("", "", "a u 1,b u 2,c u 3,d u 4,e u 5,f u 6")
	f("a", "c", "b u 2,c u 3")
	f("aa", "cc", "b u 2,c u 3")
	f("", "b", "", "a"+extra, "b"+extra)
	f("e", "", "", "f"+extra)
	f("b", "d", "d u 4", "c"+extra)
	f("b", "d", "c u 3", "d"+extra)
	f("b", "d", "c u 3,cc u 9,d u 4", "cc: missing")
	f("d", "", "e u 5,f u 6,g u 7", "g: missing")
	f("b", "d", "c u 7,d v 4", "c: at 3, kube-apiserver at 7", "d: another uid")
	f("", "", "", "a"+extra, "b"+extra, "c"+extra, "d"+extra, "e"+extra) // and no more
}

func TestPageLimit(t *testing.T) {
	f := func(objects int, bytes int64, want int) {
		t.Helper()
		if got := pageLimit(fanout.Stats{Objects: objects, Bytes: bytes}); got != want {
			t.Errorf("%d objects of %d bytes: got %d, want %d", objects, bytes, got, want)
		}
	}
	f(0, 0, mostPage)
	f(10, 1000, mostPage)
	f(1000, 1000*8191, 2048)
	f(100, 100<<20, leastPage)
}

// The digest is the one that the package comment describes. The figures are Python's:
//
//	int.from_bytes(sha256(b"ns/a\0u1\0" + b"101").digest()[:16])
func TestDigest(t *testing.T) {
	a, b := hash("ns/a", "u1", 101), hash("b", "u2", 18446744073709551615)
	for _, c := range []struct{ got, want string }{
		{digest{}.String(), "00000000000000000000000000000000"},
		{a.String(), "ce806ad448c83b0e310c4d32be2191e0"},
		{b.String(), "55e4f7274bef2e25275a52ecb903475e"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	sum := a
	sum.add(b)
	if sum.String() != "246561fb94b769335866a01f7724d93e" || sum.objects != 2 {
		t.Errorf("got %s of %d", sum, sum.objects)
	}
	if x := hash("ns/a", "u11", 1); x == a || x == hash("ns/au11", "", 1) || x == hash("ns/a", "u1", 11) {
		t.Error("the parts of an identity run together")
	}
}

// The order does not matter, and the sum is one of 128 bits.
func TestDigestSum(t *testing.T) {
	rng := steady.Rand(t)
	var all []digest
	for range 1000 {
		all = append(all, digest{rng.Uint64(), rng.Uint64(), 1})
	}
	var there, back digest
	for i := range all {
		there.add(all[i])
		back.add(all[len(all)-1-i])
	}
	if there != back || there.objects != 1000 {
		t.Errorf("got %s and %s", there, back)
	}
	carried := digest{lo: 1<<64 - 1}
	carried.add(digest{lo: 1})
	if carried != (digest{hi: 1}) {
		t.Errorf("got %s", carried)
	}
}
