package main

import (
	"strings"
	"testing"
)

// A package URL has its path in lower case, and no plus sign.
func TestPackageURL(t *testing.T) {
	if got := packageURL("example.com/A", "1.2.3+x"); got != "pkg:golang/example.com/a@1.2.3%2Bx" {
		t.Errorf("got %s", got)
	}
}

// A file that is no program, and a command that does not exist, give an error and nothing else.
func TestNoPaper(t *testing.T) {
	for _, args := range [][]string{{"bill", "1", "main.go"}, {"licences", "no such file"},
		{"provenance", "1", "c", "main.go", "--", "main.go"}, {"provenance", "1", "c", "--", "no such file"}, {"bill"}, nil} {
		if err := run(failing{t}, args); err == nil {
			t.Errorf("%q is no error", args)
		}
	}
}

// failing fails the test when something is written.
type failing struct{ *testing.T }

func (f failing) Write(p []byte) (int, error) {
	f.Errorf("it writes %s", p)
	return len(p), nil
}

// A licence is recognised by its own words, whatever its lines are. A text may have several, or none.
func TestIdentify(t *testing.T) {
	const mit, bsd = "Permission is hereby granted, free of\ncharge, to any person obtaining a copy\n",
		"Redistributions in binary form must\nreproduce the above copyright notice\n"
	for text, want := range map[string]string{
		"  Apache License\n   Version 2.0, January 2004\n": "Apache-2.0",
		mit: "MIT",
		bsd: "BSD-2-Clause",
		bsd + "may be used to endorse or promote products derived from\nthis software": "BSD-3-Clause",
		mit + bsd:                           "BSD-2-Clause MIT",
		"GNU AFFERO GENERAL PUBLIC LICENSE": "",
		"":                                  "",
	} {
		if got := strings.Join(identify(text), " "); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
