package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The linker sets them; where it does not, the build's own record says.
var release, gitCommit string

// testedKubernetes is the version of kube-apiserver in deploy/devcluster.
const testedKubernetes = "v1.37.2"

// build is what `watchfan version -o json` prints: what a scanner of vulnerabilities or licences asks.
type build struct {
	Version           string            `json:"version"`
	GitCommit         string            `json:"gitCommit"` // "unknown" outside a repository
	GoVersion         string            `json:"goVersion"`
	Platform          string            `json:"platform"`
	KubernetesVersion string            `json:"kubernetesVersion"` // that it is tested with
	License           string            `json:"license"`           // of SPDX
	Settings          map[string]string `json:"settings"`          // of the compiler, such as CGO_ENABLED
	Modules           []builtModule     `json:"modules"`           // that are built in, besides Go's own packages
}

type builtModule struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum"` // as in go.sum
}

func readBuild() build {
	b := build{Version: release, GitCommit: gitCommit, GoVersion: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, KubernetesVersion: testedKubernetes, License: "Apache-2.0",
		Settings: make(map[string]string)}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			b.Settings[s.Key] = s.Value
		}
		b.GitCommit = cmp.Or(b.GitCommit, b.Settings["vcs.revision"])
		for _, m := range info.Deps {
			b.Modules = append(b.Modules, builtModule{m.Path, m.Version, m.Sum})
		}
	}
	b.Version, b.GitCommit = cmp.Or(b.Version, "unknown"), cmp.Or(b.GitCommit, "unknown")
	return b
}

func (b build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s, tested with Kubernetes %s)", b.Version, b.GitCommit, b.GoVersion, b.Platform,
		b.KubernetesVersion)
}

func newVersion() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "watchfan version prints the version of watchfan, its commit, Go version and platform, and the Kubernetes\n" +
			"version that it is tested with. As json or yaml it also lists the modules that are built in.",
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if slices.Contains([]string{"", "json", "yaml"}, output) {
				return nil
			}
			return fmt.Errorf("--output=%s is unknown: give json or yaml", output)
		},
		RunE: func(c *cobra.Command, _ []string) error { return readBuild().print(c.OutOrStdout(), output) },
	}
	c.Flags().StringVarP(&output, "output", "o", "", "`FORMAT`: json or yaml")
	return c
}

func (b build) print(w io.Writer, format string) (err error) {
	text := fmt.Appendln(nil, "watchfan", b)
	switch format {
	case "json":
		text, err = json.MarshalIndent(b, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(b)
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
