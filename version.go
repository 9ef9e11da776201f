package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"sigs.k8s.io/yaml"

	"github.com/watchfan/watchfan/proxy/option"
)

// The linker sets them; where it does not, the build's own record says.
var release, gitCommit string

// testedKubernetes is the version of kube-apiserver in deploy/devcluster.
const testedKubernetes = "v1.36.3"

// build is what `watchfan version -o json` prints.
type build struct {
	Version           string `json:"version"`
	GitCommit         string `json:"gitCommit"` // "unknown" outside a repository
	GoVersion         string `json:"goVersion"`
	Platform          string `json:"platform"`
	KubernetesVersion string `json:"kubernetesVersion"` // that it is tested with
}

func readBuild() build {
	b := build{Version: release, GitCommit: gitCommit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, KubernetesVersion: testedKubernetes}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.GitCommit = cmp.Or(b.GitCommit, s.Value)
			}
		}
	}
	b.Version, b.GitCommit = cmp.Or(b.Version, "unknown"), cmp.Or(b.GitCommit, "unknown")
	return b
}

// versionFlags returns the flags of the command, which set output.
func versionFlags(output *string) *flag.FlagSet {
	fs := flag.NewFlagSet("watchfan version", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the errors come back
	fs.StringVar(output, "o", "", "`FORMAT`: json or yaml")
	return fs
}

func version(args []string) int {
	var output string
	fs := versionFlags(&output)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Println("Usage: watchfan version [-o json|yaml]\n\nPrints the version of watchfan, its commit, Go version and platform, and the Kubernetes version that it is tested with.")
		return 0
	}
	err = option.Explain(fs, err)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("version takes no argument, not %q", fs.Arg(0))
	}
	if err != nil {
		return wrong(err)
	}

	b := readBuild()
	var text []byte
	switch output {
	case "":
		text = fmt.Appendf(nil, "watchfan %s (commit %s, %s, %s, tested with Kubernetes %s)\n", b.Version, b.GitCommit, b.GoVersion, b.Platform, b.KubernetesVersion)
	case "json":
		text, err = json.MarshalIndent(b, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(b)
	default:
		return wrong(fmt.Errorf("-o=%s is unknown: give json or yaml", output))
	}
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
