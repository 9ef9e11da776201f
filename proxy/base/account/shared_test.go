package account

import "testing"

// What several hold counts once, for one who holds it.
func TestShared(t *testing.T) {
	l := New(Limits{Each: 100})
	cut := make(map[string]int)
	s := l.Share(Answers, 60)
	hold := func(name string) func() {
		letGo, ok := s.Hold(Source{Name: name}, func() { cut[name]++ })
		if !ok {
			t.Fatalf("%s may not hold it", name)
		}
		return letGo
	}
	want := func(when, payer string) {
		t.Helper()
		got := l.Largest(10)
		if payer == "" && len(got) == 0 || len(got) == 1 && got[0].Source.Name == payer && got[0].Total() == 60 {
			return
		}
		t.Errorf("%s: %+v, want %q with 60", when, got, payer)
	}
	first, again, other := hold("a"), hold("a"), hold("b")
	want("three holders", "a")
	first()
	first()
	want("another holder of the same source", "a")
	again()
	want("the next pays", "b")
	if l.Relieve(1, Answers) != 60 || cut["b"] != 1 || cut["a"] != 0 {
		t.Errorf("cut %v, want b alone", cut)
	}
	if _, ok := s.Hold(Source{Name: "b"}, nil); ok {
		t.Error("a source that has been cut holds it again")
	}
	last := hold("c")
	other()
	want("behind the cut", "c")
	last()
	want("nobody holds it", "")

	full := l.Open(Source{Name: "a"}, Bodies, nil)
	full.Set(50)
	if _, ok := s.Hold(Source{Name: "a"}, nil); ok {
		t.Error("a source holds more than its bound")
	}
	full.Close()
	hold("a")()
	want("at the end", "")
	if got := l.Totals(); got.Held[Answers] != 0 || l.live != 0 || got.Refused[Answers] != 1 {
		t.Errorf("%+v is left", got)
	}
}
