// Command release writes the bill of materials of a Go program, in CycloneDX's JSON: the modules that
// are in it, with their versions, as `go version -m` lists them.
//
//	release BINARY VERSION > BINARY.cdx.json
//
// release.sh, which make release runs, makes everything of a release. The same sources give the same
// bytes: the bill has no time and no serial number.
//
// It is in the module of deploy, so watchfan does not depend on CycloneDX.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Usage: release BINARY VERSION")
		os.Exit(2)
	}
	bill, err := read(os.Args[1], os.Args[2])
	if err == nil {
		err = cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// read returns the bill of a binary, whose version the linker does not know.
func read(binary, version string) (*cdx.BOM, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	program := module(info.Main.Path, version)
	program.Type, program.Name = cdx.ComponentTypeApplication, path.Base(info.Main.Path)
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	parts := []cdx.Component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		parts = append(parts, module(used(m).Path, used(m).Version))
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

// used returns the module that is built in: m, or what replaces it.
func used(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// module returns a component with its package URL, whose path is in lower case by its type's rules
// (github.com/package-url/purl-spec, golang).
func module(path, version string) cdx.Component {
	url := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url, BOMRef: url}
}
