package account

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A source that would exceed its own bound is refused, and its other entries go on.
func TestEach(t *testing.T) {
	l := New(Limits{Each: 100})
	a := l.Open(Source{Name: "a"}, Bodies, func() { t.Error("cut") })
	if !a.Set(60) || a.Add(50) || !a.Add(40) {
		t.Fatal("the bound of a source is not its bound")
	}
	if other := l.Open(Source{Name: "b"}, Bodies, nil); !other.Set(100) {
		t.Fatal("another source has no room")
	}
	a.Close()
	if again := l.Open(Source{Name: "a"}, Answers, nil); !again.Set(100) {
		t.Fatal("a closed entry counts")
	}
}

// When strangers fill what they share, the largest is cut, and not the next comer. Known clients do
// not feel it.
func TestStrangers(t *testing.T) {
	l := New(Limits{Strangers: 100})
	cut := make(map[string]int)
	open := func(source Source) *Entry {
		return l.Open(source, Bodies, func() { cut[source.Name]++ })
	}
	known, large := open(Source{Name: "known"}), open(Source{Name: "large", Stranger: true})
	small, comer := open(Source{Name: "small", Stranger: true}), open(Source{Name: "comer", Stranger: true})
	if !known.Set(1000) || !large.Set(60) || !small.Set(40) || large.Add(10) {
		t.Fatal("the largest gets more when all is taken")
	}
	if !comer.Set(50) {
		t.Fatal("the next comer is refused")
	}
	if len(cut) != 1 || cut["large"] != 1 {
		t.Fatalf("cut %v, want the largest alone, once", cut)
	}
	if large.Set(61) {
		t.Fatal("an entry that was cut grows")
	}
	if got := l.Totals(); got.Held[Bodies] != 1150 || got.Cut[Bodies] != 60 {
		t.Fatalf("got %+v", got)
	}
	large.Close()
	if got := l.Totals(); got.Held[Bodies] != 1090 || got.Strangers != 90 || got.Cut[Bodies] != 60 {
		t.Fatalf("got %+v", got)
	}
}

// Relieve cuts the largest source, a known one too.
func TestRelieve(t *testing.T) {
	l := New(Limits{})
	ended := 0
	large := l.Open(Source{Name: "large"}, Answers, func() { ended++ })
	kept := l.Open(Source{Name: "large"}, Bodies, nil)
	lane := l.Open(Source{Name: "lane"}, Lanes, func() { ended += 10 })
	small := l.Open(Source{Name: "small", Stranger: true}, Bodies, func() { t.Error("cut the smaller source") })
	if !large.Set(10) || !kept.Set(5) || !small.Set(9) || !lane.Set(100) {
		t.Fatal("refused without a bound")
	}
	var told []Cut
	l.Told = func(c Cut) { told = append(told, c) }
	if l.Relieve(100, Passing()...) != 0 {
		t.Fatal("cut a source that holds little")
	}
	if freed := l.Relieve(1, Passing()...); freed != 10 || ended != 1 {
		t.Fatalf("cut %d bytes, %d times", freed, ended)
	}
	if want := (Cut{Source{Name: "large"}, 10, true}); len(told) != 1 || told[0] != want {
		t.Fatalf("told %v, want %v", told, want)
	}
	if freed := l.Relieve(1, Lanes); freed != 100 || ended != 11 {
		t.Fatalf("cut lanes of %d bytes, %d times", freed, ended)
	}
}

// What moves counts for another source.
func TestMove(t *testing.T) {
	l, cut := New(Limits{Each: 100}), 0
	e := l.Open(Source{Name: "10.0.0.1", Stranger: true}, Heads, func() { cut++ })
	e.Set(60)
	e.Move(Source{Name: "a"})
	if got := l.Largest(2); len(got) != 1 || got[0].Source.Name != "a" || got[0].Total() != 60 || l.Totals().Strangers != 0 {
		t.Errorf("%+v is held", got)
	}
	if l.Open(Source{Name: "a"}, Bodies, nil).Set(50) || l.Relieve(1, Heads) != 60 || cut != 1 {
		t.Error("it does not count there")
	}
	e.Move(Source{Name: "b"})
	e.Close()
	if got := l.Largest(2); len(got) != 0 || len(l.sources) != 1 {
		t.Errorf("%+v is held at the end", got)
	}
}

// What has been given back is not cut: a watch that is read again goes on.
func TestCutOfNothing(t *testing.T) {
	l := New(Limits{All: 100})
	a := Source{Name: "a"}
	again, held := l.Open(a, Watches, func() { t.Error("cut what holds nothing") }), l.Open(a, Answers, nil)
	ended := 0
	large := l.Open(a, Watches, func() { ended++ })
	if !again.Set(10) || !again.Set(0) || !held.Set(1) || !large.Set(90) || !l.Open(Source{Name: "b"}, Bodies, nil).Set(20) || ended != 1 {
		t.Fatalf("%d ended", ended)
	}
	if !again.Set(10) {
		t.Error("it may hold nothing any more")
	}
}

// Connections do not count for the bounds of the rest, and none is closed for what others hold. But when
// memory is short, they count as all that passes.
func TestConnections(t *testing.T) {
	l := New(Limits{Each: 100, Strangers: 100, All: 100})
	crowd, closed, ended := Source{Name: "10.0.0.1", Stranger: true}, 0, 0
	for range 10 {
		if !l.Open(crowd, Connections, func() { closed++ }).Set(40) {
			t.Fatal("a connection is refused")
		}
	}
	large := l.Open(Source{Name: "large"}, Answers, func() { ended++ })
	if !large.Set(90) || !l.Open(Source{Name: "b"}, Bodies, nil).Set(20) || ended != 1 || closed != 0 {
		t.Fatalf("%d answers and %d connections ended for a bound", ended, closed)
	}
	if l.Relieve(1, Passing()...) != 400 || closed != 10 {
		t.Errorf("%d connections are closed when memory is short", closed)
	}
}

// A stranger has three quarters of the bound of connections, and is refused beyond. If others fill the bound
// too, the largest is cut, and not the next comer. Users have no bound. What has moved to a user, or has
// been cut, leaves room at once.
func TestStrangersConnections(t *testing.T) {
	l := New(Limits{Connections: 400, Each: 10, Strangers: 10, All: 10})
	cut := make(map[string]int)
	last := make(map[string]*Entry)
	fill := func(source Source) (n int) {
		for ; n < 1000; n++ {
			e := l.Open(source, Connections, func() { cut[source.Name]++ })
			if !e.Set(1) {
				break
			}
			last[source.Name] = e
		}
		return n
	}
	stranger := func(name string) Source { return Source{Name: name, Stranger: true} }
	if n := fill(stranger("large")); n != 300 {
		t.Fatalf("one stranger has %d of 400", n)
	}
	if n := fill(Source{Name: "user"}); n != 1000 {
		t.Fatalf("a user has %d", n)
	}
	answer := l.Open(stranger("large"), Answers, func() { t.Error("an answer is cut for a connection") })
	if !answer.Set(10) {
		t.Fatal("connections take the room of answers")
	}
	last["large"].Move(Source{Name: "user"})
	if n := fill(stranger("large")); n != 1 {
		t.Fatalf("%d more behind one that has moved", n)
	}
	if n := fill(stranger("small")); n != 300 || len(cut) != 1 || cut["large"] != 300 {
		t.Fatalf("another stranger has %d, cut %v", n, cut)
	}
	if n := fill(stranger("comer")); n != 300 || len(cut) != 2 || cut["small"] != 300 {
		t.Fatalf("the next comer has %d, cut %v", n, cut)
	}
}

// Copies have a bound of their own, lanes have none, and neither takes room from what passes.
func TestCaches(t *testing.T) {
	l := New(Limits{Each: 10, All: 10, Copies: 100})
	a := Source{Name: "a"}
	lane, one, two, body := l.Open(a, Lanes, nil), l.Open(a, Copies, func() {}), l.Open(a, Copies, func() {}), l.Open(a, Bodies, nil)
	if !lane.Set(1000) || !one.Set(60) || two.Set(50) || !two.Set(40) || !body.Set(10) {
		t.Fatal("the bounds of caches are not their own")
	}
	if got := l.Largest(1); len(got) != 1 || got[0].Total() != 1110 || got[0].Things != 4 {
		t.Fatalf("the largest is %+v", got)
	}
}

// Whatever happens, sums are those of the entries, and nothing is left behind.
func TestSums(t *testing.T) {
	draw := steady.Rand(t)
	l := New(Limits{Each: 1000, Strangers: 2000, All: 4000, Connections: 1000, Copies: 1000})
	var open []*Entry
	sources := []Source{{Name: "a"}, {Name: "b"}, {Name: "c"}, {"x", true}, {"y", true}, {"z", true}}
	for range 20_000 {
		switch n := draw.IntN(10); {
		case n < 3:
			var e *Entry
			e = l.Open(sources[draw.IntN(len(sources))], Kind(draw.IntN(int(kinds))), func() { e.gone = true })
			open = append(open, e)
		case len(open) == 0:
		case n < 7:
			open[draw.IntN(len(open))].Set(draw.Int64N(800))
		case n < 8: // whatever the bounds, so it is given back first
			e := open[draw.IntN(len(open))]
			e.Set(0)
			e.Move(sources[draw.IntN(len(sources))])
		default:
			i := draw.IntN(len(open))
			open[i].Close()
			open = append(open[:i], open[i+1:]...)
		}
		var held, live, strangers, unknown int64
		for _, e := range open {
			held += e.bytes
			if e.gone {
				continue
			}
			if e.kind.bounded() {
				live += e.bytes
			}
			switch {
			case !e.of.source.Stranger:
			case e.kind.bounded():
				strangers += e.bytes
			case e.kind == Connections:
				unknown += e.bytes
			}
		}
		var sum int64
		for _, bytes := range l.held {
			sum += bytes
		}
		if sum != held || l.live != live || l.strangers != strangers || l.unknown != unknown ||
			live > 4000 || strangers > 2000 || unknown > 1000 {
			t.Fatalf("sums %d %d %d %d, want %d %d %d %d", sum, l.live, l.strangers, l.unknown, held, live, strangers, unknown)
		}
	}
	for _, e := range open {
		e.Close()
	}
	if got := l.Totals(); got.Open != 0 || len(l.sources) != 0 || got.Held != [kinds]int64{} || got.Strangers != 0 || l.unknown != 0 {
		t.Fatalf("%+v is left", got)
	}
}
