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

// ledger counts what attackers do: by kind of attack, and there by what happened. That is round for an
// attacker that took the kind up, how an attempt was answered or ended, or a breach.
type ledger struct {
	mu    sync.Mutex
	kinds map[string]map[string]int
}

const (
	round      = "rounds"
	breach     = "BREACH: "
	mostNoted  = 100 // of one kind
	notReached = "refused"
)

func newLedger() *ledger { return &ledger{kinds: make(map[string]map[string]int)} }

func (l *ledger) note(kind, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[kind] == nil {
		l.kinds[kind] = make(map[string]int)
	}
	if counts := l.kinds[kind]; counts[what] > 0 || len(counts) < mostNoted {
		counts[what]++
	}
}

// save writes the ledger to a file.
func (l *ledger) save(file string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, err := json.Marshal(l.kinds)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

func readLedger(file string) (*ledger, error) {
	l := newLedger()
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &l.kinds)
	}
	return l, err
}

// String is a table of all kinds.
func (l *ledger) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(l.kinds)) {
		fmt.Fprintf(&b, "  %-40s", kind)
		for _, what := range slices.Sorted(maps.Keys(l.kinds[kind])) {
			fmt.Fprintf(&b, " %s×%d", what, l.kinds[kind][what])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// wrong returns what went wrong: kinds that did not happen, because nobody attacked or reached the server,
// and breaches.
func (l *ledger) wrong(kinds []string) (wrong []string) {
	for _, kind := range kinds {
		reached := maps.Clone(l.kinds[kind])
		delete(reached, round)
		delete(reached, notReached)
		if len(reached) == 0 {
			wrong = append(wrong, fmt.Sprintf("nobody attacked by %q", kind))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(l.kinds)) {
		for what := range l.kinds[kind] {
			if strings.HasPrefix(what, breach) {
				wrong = append(wrong, fmt.Sprintf("%q: %s", kind, what))
			}
		}
	}
	return wrong
}
