// Command release writes the papers of a release, which release.sh, run by make release, puts beside
// the programs:
//
//	release bill VERSION PROGRAM                              CycloneDX: a program's modules, with their licences
//	release licences PROGRAM                                  the texts of these licences
//	release provenance VERSION COMMIT PROGRAMS -- FILES       in-toto with SLSA: what the files are made of
//
// The modules are those that `go version -m` lists. The same sources give the same bytes: a paper has
// no time, no serial number and no path. A module without a known licence is an error.
//
// It is in the module of deploy, so watchfan does not depend on CycloneDX.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run writes one paper.
func run(w io.Writer, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "bill":
		bill, err := read(args[2], args[1])
		if err != nil {
			return err
		}
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
	case len(args) == 2 && args[0] == "licences":
		return printLicences(w, args[1])
	case len(args) > 3 && args[0] == "provenance" && slices.Contains(args, "--"):
		end := slices.Index(args, "--")
		s, err := provenance(args[1], args[2], args[3:end], args[end+1:])
		if err != nil {
			return err
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return errors.New("usage: release bill VERSION PROGRAM, release licences PROGRAM, or " +
		"release provenance VERSION COMMIT PROGRAMS -- FILES")
}

// read returns the bill of a program, whose version the linker does not know.
func read(binary, version string) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum, err := digest(binary)
	if err != nil {
		return nil, err
	}
	program := component(info.Main.Path, version, "Apache-2.0")
	program.Type, program.Name = cdx.ComponentTypeApplication, path.Base(info.Main.Path)
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}

	var parts []cdx.Component
	for _, m := range modules(info) {
		_, all, err := licences(m)
		if err != nil {
			return nil, err
		}
		parts = append(parts, component(m.Path, m.Version, all...))
	}
	uses := make([]string, len(parts))
	for i, p := range parts {
		uses[i] = p.BOMRef
	}
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &program}
	bill.Components = &parts
	bill.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &uses}}
	return bill, nil
}

// modules returns the modules of a program. The first is Go's standard library, under the name std
// and without a sum; where one replaces another, it is the one that is built in.
func modules(info *debug.BuildInfo) []*debug.Module {
	all := []*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, m)
	}
	return all
}

// digest returns a file's SHA-256, in hexadecimal.
func digest(file string) (string, error) {
	content, err := os.ReadFile(file)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// component returns a component of a bill. All of the licences hold for a part of it each.
func component(path, version string, licences ...string) cdx.Component {
	url, choice := packageURL(path, version), cdx.LicenseChoice{Expression: strings.Join(licences, " AND ")}
	if len(licences) == 1 {
		choice = cdx.LicenseChoice{License: &cdx.License{ID: licences[0]}}
	}
	return cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url, BOMRef: url,
		Licenses: &cdx.Licenses{choice}}
}

// packageURL returns the URL of a module, whose path is in lower case by its type's rules
// (github.com/package-url/purl-spec, golang).
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
