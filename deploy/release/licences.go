package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// known are sentences that only one licence has, in one line.
var known = []struct{ id, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
	{"BSD-3-Clause", "may be used to endorse or promote products derived from this software"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)
	spaces      = regexp.MustCompile(`\s+`)
)

// identify returns the SPDX identifiers of the licences in a text, sorted.
func identify(text string) (ids []string) {
	line := spaces.ReplaceAllString(text, " ")
	for _, k := range known {
		if strings.Contains(line, k.sentence) {
			ids = append(ids, k.id)
		}
	}
	if slices.Contains(ids, "BSD-3-Clause") { // which has the other's sentence too
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "BSD-2-Clause" })
	}
	return ids
}

// licences returns the files with a module's licences and notices, by name, and their identifiers, from
// the folder that it was built from.
func licences(m *debug.Module) (files map[string]string, ids []string, err error) {
	dir, err := folder(m)
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files = make(map[string]string)
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) == ".go" || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		files[e.Name()] = strings.TrimSpace(string(text))
		ids = append(ids, identify(string(text))...)
	}
	if len(ids) == 0 {
		return nil, nil, fmt.Errorf("%s %s has no licence that is known: see licences.go", m.Path, m.Version)
	}
	slices.Sort(ids)
	return files, slices.Compact(ids), nil
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
		files, _, err := licences(m)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if _, err := fmt.Fprintf(w, "==== %s %s: %s\n\n%s\n\n", m.Path, m.Version, name, files[name]); err != nil {
				return err
			}
		}
	}
	return nil
}
