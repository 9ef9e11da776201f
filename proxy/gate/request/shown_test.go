package request

import (
	"errors"
	"strings"
	"testing"
)

// Strings that clients send are shown as one short line of plain text.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"kubelet/v1.37":             "kubelet/v1.37",
		"a\x1b[2Jb\nc\td":           "a\ufffd[2Jb\ufffdc\ufffdd",
		"\xff\u009b1m\u202eevil":    "\ufffd\ufffd1m\ufffdevil",
		"ä":                         "ä",
		strings.Repeat("ä", 10_000): strings.Repeat("ä", (maxShown-len("…"))/2) + "\ufffd…",
	} {
		if got := Shown(in); got != want {
			t.Errorf("Shown(%.20q…) = %q, want %q", in, got, want)
		}
	}
}

// An error has its lines, and ends somewhere.
func TestShownError(t *testing.T) {
	for in, want := range map[string]string{
		"no\nanswer\x1b[2J":         "no\nanswer\ufffd[2J",
		strings.Repeat("x", 64<<20): strings.Repeat("x", maxShownError-len("…")) + "…",
	} {
		if got := ShownError(errors.New(in)); got != want {
			t.Errorf("got %.20q of %d bytes, want %.20q of %d", got, len(got), want, len(want))
		}
	}
}
