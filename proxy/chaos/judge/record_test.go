package main

import (
	"strings"
	"testing"
)

// TestBadRecords: what cannot be judged is an error, and says why.
func TestBadRecords(t *testing.T) {
	const history = `{"kind":"change","rv":2,"at":5,"key":"widgets/ns/a","value":"x"}` + "\n"
	const done = `{"kind":"done"}`
	for name, c := range map[string]struct{ record, want string }{
		"empty":              {"", "has no end"},
		"broken off":         {history, "has no end"},
		"half a line":        {history + `{"kind":`, "unexpected EOF"},
		"unknown field":      {`{"kind":"run","sead":5}`, "sead"},
		"unknown kind":       {`{"kind":"walk"}` + done, "unknown kind"},
		"watch of nothing":   {`{"kind":"watch"}` + done, "without a scope"},
		"event of nothing":   {history + `{"kind":"event","client":"w"}` + done, "no stream"},
		"missing revision":   {history + `{"kind":"change","rv":4,"at":6}` + done, "revision 4 of etcd follows 2"},
		"revision too early": {`{"kind":"change","rv":1,"at":6}` + done, "follows 1"},
		"unknown write":      {history + `{"kind":"write","client":"w","rv":9}` + done, "does not have"},
		"impossible times":   {history + `{"kind":"write","client":"w","rv":2,"at":7,"until":8}` + done, "contradict"},
		"bad selector": {history + `{"kind":"watch","client":"w","scope":{"resource":"widgets","labels":"a in"}}` + done,
			"found"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := readLines(strings.NewReader(c.record))
			if err == nil {
				_, err = newTrial(lines)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
