package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
)

// licence is one file of a module that says what its code may be used for.
type licence struct {
	id   string // of SPDX; "" for a notice
	file string
	text string
}

// known are sentences that only one licence has, in one line. The first that is found decides.
var known = []struct{ id, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"BSD-3-Clause", "may be used to endorse or promote products derived from this software"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)(\.(txt|md))?$`)
	spaces      = regexp.MustCompile(`\s+`)
)

// identify returns the SPDX identifier of a licence's text, "" if it is none of known.
func identify(text string) string {
	line := strings.TrimSpace(spaces.ReplaceAllString(text, " "))
	for _, k := range known {
		if strings.Contains(line, k.sentence) {
			return k.id
		}
	}
	return ""
}

// licences returns the licence of a module and its other notices, from the folder that it was built
// from.
func licences(m *debug.Module) ([]licence, error) {
	dir, err := folder(m)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var first, others []licence
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		l := licence{id: identify(string(text)), file: e.Name(), text: string(text)}
		if l.id != "" && len(first) == 0 {
			first = append(first, l)
		} else {
			others = append(others, l)
		}
	}
	if len(first) == 0 {
		return nil, fmt.Errorf("%s %s has no licence that is known: see licences.go", m.Path, m.Version)
	}
	return append(first, others...), nil
}

// folder returns the folder of a module's sources: of Go itself for std.
func folder(m *debug.Module) (string, error) {
	name := "GOMODCACHE"
	if m.Path == "std" {
		name = "GOROOT"
	}
	out, err := exec.Command("go", "env", name).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || m.Path == "std" {
		return dir, err
	}
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	return filepath.Join(dir, path+"@"+version), err
}

// printLicences writes the licences of all modules of a program. They demand to be given on with it.
func printLicences(w io.Writer, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	for _, m := range modules(info) {
		texts, err := licences(m)
		if err != nil {
			return err
		}
		for _, l := range texts {
			text := strings.TrimSpace(l.text)
			if _, err := fmt.Fprintf(w, "==== %s %s: %s\n\n%s\n\n", m.Path, m.Version, l.file, text); err != nil {
				return err
			}
		}
	}
	return nil
}
