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

// What differs from the list is found and named, wherever it is and however long the pages are, and the digest is
// that of all that is held.
func TestSide(t *testing.T) {
	held := strings.Split("b u 2,c u 3,d u 4,e u 5,f u 6", ",")
	f := func(lists string, want ...string) {
		t.Helper()
		var all digest
		for _, text := range held {
			all.add(hash(parse(text)))
		}
		var whole []listed
		for text := range strings.SplitSeq(lists, ",") {
			if text != "" {
				key, uid, rv := parse(text)
				whole = append(whole, listed{key, uid, rv})
			}
		}
		for size := range len(whole) + 1 {
			s := side{snapshot: snapshotOf(t, held...)}
			page := whole
			for size > 0 && len(page) > size {
				s.compare(page[:size], false)
				page = page[size:]
			}
			s.compare(page, true)
			if !slices.Equal(s.named, want) || s.digest != all {
				t.Errorf("listed %s by %d: got %q, digest %s of %d, want %q, %s",
					lists, size, s.named, s.digest, s.digest.objects, want, all)
			}
		}
	}
	const extra = ": kube-apiserver does not have it"
	f("b u 2,c u 3,d u 4,e u 5,f u 6")
	f("a u 9,b u 2,c u 3,d u 4,e u 5,f u 6", "a: missing")
	f("b u 2,c u 3,cc u 9,d u 4,e u 5,f u 6,g u 7", "cc: missing", "g: missing")
	f("c u 3,e u 5", "b"+extra, "d"+extra, "f"+extra)
	f("b u 2,c u 7,d v 4,e u 5,f u 6", "c: at 3, kube-apiserver at 7", "d: another uid")
	f("a u 1", "a: missing", "b"+extra, "c"+extra, "d"+extra, "e"+extra) // and no more
	held = nil
	f("")
	f("a u 1", "a: missing")
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
