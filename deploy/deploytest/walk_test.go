package deploytest

import (
	"slices"
	"strings"
	"testing"
)

// mostCommands is how many commands the walk may have.
const mostCommands = 10

// TestWalk: "A new user enrols a workload, observes it, serves it, loses watchfan and takes the workload
// back, with the commands of deploy/TRY.md." A block of the kind text is what the informer says next.
func TestWalk(t *testing.T) {
	if ranInNamespace(t) {
		return
	}
	const page = "deploy/TRY.md"
	w := newWorkshop(t)
	var informer *terminal
	var says command
	exports, commands := "", 0
	for _, b := range readBlocks(t, page) {
		if b.text != nil {
			says.says = append(append(says.says[:len(says.says)-1], b.text...), "…")
			says.compile()
			if err := informer.expect(says); err != nil {
				t.Fatalf("%s:%d: %v\n%s", page, b.line, err, informer.output())
			}
		}
		for _, c := range b.commands {
			commands++
			typed := c.text
			c.text = exports + typed
			if strings.HasPrefix(typed, "export ") {
				exports = typed + "\n"
			}
			term := w.run(t, c)
			t.Cleanup(func() { term.interrupt(t) })
			if err := term.expect(c); err != nil {
				t.Fatalf("%s:%d: %v\n$ %s\n%s", page, c.line, err, typed, term.output())
			}
			if strings.HasPrefix(typed, "pod ") {
				informer, says = term, c
			}
		}
	}
	want := slices.Delete(says.says, len(says.says)-1, len(says.says))
	if got := strings.TrimSpace(informer.output()); got != strings.Join(want, "\n") {
		t.Errorf("at the end the informer has said\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if commands < 5 || commands > mostCommands {
		t.Errorf("%s has %d commands, want %d at most", page, commands, mostCommands)
	}
}
