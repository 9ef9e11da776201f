package attack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// ledger counts what attackers do, by kind of attack. A kind that is not in it did not happen.
type ledger struct {
	mu    sync.Mutex
	Kinds map[string]*record
}

// record is what attackers of one kind did.
type record struct {
	Rounds   int            // attackers that took it up
	Answers  map[string]int // by status code, or by how it ended
	Breaches []string       // what the server should not have answered
}

func newLedger() *ledger { return &ledger{Kinds: make(map[string]*record)} }

func (l *ledger) change(kind string, f func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.Kinds[kind]
	if r == nil {
		r = &record{Answers: make(map[string]int)}
		l.Kinds[kind] = r
	}
	f(r)
}

func (l *ledger) round(kind string) { l.change(kind, func(r *record) { r.Rounds++ }) }

func (l *ledger) answered(kind, how string) { l.change(kind, func(r *record) { r.Answers[how]++ }) }

// breached notes the first few breaches of a kind.
func (l *ledger) breached(kind, what string) {
	l.change(kind, func(r *record) {
		if len(r.Breaches) < 5 {
			r.Breaches = append(r.Breaches, what)
		}
	})
}

// save writes the ledger to a file.
func (l *ledger) save(file string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

func readLedger(file string) (*ledger, error) {
	l := newLedger()
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, l)
	}
	return l, err
}

// sent returns the number of attempts.
func (r *record) sent() (n int) {
	for _, m := range r.Answers {
		n += m
	}
	return n
}

// String is a table of all kinds.
func (l *ledger) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(l.Kinds)) {
		r := l.Kinds[kind]
		fmt.Fprintf(&b, "  %-40s %5d rounds %8d sent:", kind, r.Rounds, r.sent())
		for _, how := range slices.Sorted(maps.Keys(r.Answers)) {
			fmt.Fprintf(&b, " %s×%d", how, r.Answers[how])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// wrong returns what went wrong: kinds that did not happen, because nobody attacked or reached the server,
// and breaches.
func (l *ledger) wrong(kinds []string) (wrong []string) {
	for _, kind := range kinds {
		if r := l.Kinds[kind]; r == nil || r.sent() == r.Answers["refused"] {
			wrong = append(wrong, fmt.Sprintf("nobody attacked by %q", kind))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(l.Kinds)) {
		for _, breach := range l.Kinds[kind].Breaches {
			wrong = append(wrong, fmt.Sprintf("breach by %q: %s", kind, breach))
		}
	}
	return wrong
}
