package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// statement is an in-toto Statement (in-toto.io/Statement/v1) with a provenance of SLSA
// (slsa.dev/provenance/v1).
type statement struct {
	Type          string        `json:"_type"`
	Subject       []artifact    `json:"subject"`
	PredicateType string        `json:"predicateType"`
	Predicate     slsaPredicate `json:"predicate"`
}

// artifact is a ResourceDescriptor.
type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type slsaPredicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []artifact        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// provenance returns the statement about files, which are made from a commit and from the modules of
// programs. The builder is whoever runs make release: the level of SLSA is 1, and the proof is that
// anybody gets the same bytes from the same commit.
func provenance(version, commit string, programs, files []string) (*statement, error) {
	s := &statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, file := range files {
		sum, err := digest(file)
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, artifact{Name: filepath.Base(file), Digest: map[string]string{"sha256": sum}})
	}
	b := &s.Predicate.BuildDefinition
	b.ExternalParameters = map[string]string{"version": version}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		if b.ResolvedDependencies == nil {
			source := "https://" + info.Main.Path
			b.BuildType = source + "/blob/v" + version + "/CONTRIBUTING.md#release"
			b.ResolvedDependencies = []artifact{{URI: "git+" + source + "@refs/tags/v" + version,
				Digest: map[string]string{"gitCommit": commit}}}
		}
		for _, m := range modules(info) {
			a, err := dependency(m)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(b.ResolvedDependencies, func(b artifact) bool { return a.URI == b.URI }) {
				b.ResolvedDependencies = append(b.ResolvedDependencies, a)
			}
		}
	}
	s.Predicate.RunDetails.Builder.ID = b.BuildType
	return s, nil
}

// dependency names a module, with the sum that go.sum has of it. in-toto writes such a sum, h1, in
// hexadecimal. Go itself has none.
func dependency(m *debug.Module) (artifact, error) {
	a := artifact{URI: packageURL(m.Path, m.Version)}
	if m.Path == "std" {
		return a, nil
	}
	sum, h1 := strings.CutPrefix(m.Sum, "h1:")
	hash, err := base64.StdEncoding.DecodeString(sum)
	if !h1 || err != nil {
		return a, fmt.Errorf("%s %s has the sum %q, which is no h1", m.Path, m.Version, m.Sum)
	}
	a.Digest = map[string]string{"dirHash": hex.EncodeToString(hash)}
	return a, nil
}
