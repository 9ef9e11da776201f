package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// try runs a command line of watchfan. It returns the exit code, standard output and standard error.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return tryRoot(t, newRoot, args...)
}

func tryRoot(t *testing.T, root func() *cobra.Command, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	files := make([]*os.File, 2)
	for i, std := range []**os.File{&os.Stdout, &os.Stderr} {
		f, err := os.Create(filepath.Join(t.TempDir(), "output"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		before := *std
		defer func() { *std = before }()
		*std, files[i] = f, f
	}
	code = run(root(), args)
	var said [2]string
	for i, f := range files {
		content, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		said[i] = string(content)
	}
	return code, said[0], said[1]
}

// An error may have the words of a server that somebody else runs.
func TestErrorsOnATerminal(t *testing.T) {
	root := func() *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return errors.New("it says\n\t\x1b[2J") }}
	}
	if code, out, err := tryRoot(t, root); code != 1 || out != "" || err != "it says\n\t\ufffd[2J\n" {
		t.Errorf("%d %q %q", code, out, err)
	}
}

// A log whose reader has left does not end the process.
func TestLogWithoutReader(t *testing.T) {
	if os.Getenv("TEST_LOG_WITHOUT_READER") != "" { // the process
		os.Exit(run(newRoot(), []string{"--kubeconfig=missing"}))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	cmd := exec.Command(self, "-test.run=^TestLogWithoutReader$")
	cmd.Env, cmd.Stderr = append(os.Environ(), "TEST_LOG_WITHOUT_READER=yes"), w
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the process ended with %v, want 1, because there is no such file", cmd.ProcessState)
	}
}

func TestCommands(t *testing.T) {
	f := func(args string, wantCode int, want string) {
		t.Helper()
		code, stdout, stderr := try(t, strings.Fields(args)...)
		said, silent := stdout, stderr
		if wantCode != 0 {
			said, silent = stderr, stdout
		}
		if code != wantCode || !strings.Contains(said, want) || silent != "" {
			t.Errorf("watchfan %s: exit code %d, standard output\n%s\nstandard error\n%s\nwant %d and %q", args, code,
				stdout, stderr, wantCode, want)
		}
	}
	f("--help", 0, "--client-buffer-bytes BYTES\n")
	f("-h", 0, "Authentication:\n")
	f("--kubeconfig=x --help", 0, "Usage:\n")
	f("help", 0, "Usage:\n")
	f("help limits", 0, "\nLimits:\n")
	f("help config", 0, "or what is wrong with it.\n")
	f("help completion", 0, "Available Commands:\n  bash")
	f("top --help", 0, "Reasons, worst first:\n")
	f("version", 0, "tested with Kubernetes v1.")
	f("--version", 0, "tested with Kubernetes v1.")
	f("--idle-timeout=1s --version", 0, "tested with Kubernetes v1.")
	f("config --idle-timeout=90m", 0, "idleTimeout: 1h30m\n")
	f("config -v=9", 0, "logLevel: debug\n")

	f("keeper --help", 0, "--service NAMESPACE/NAME")
	f("keeper --service=x/y", 2, `--tls-ca-file="" is missing: give a file`)
	f("keeper --service=x --tls-cert-file=a --tls-ca-file=b", 2, `--service="x" names no Service: give NAMESPACE/NAME`)
	f("completion bash", 0, "__start_watchfan")

	f("verison", 2, "Did you mean this?\n\tversion\n")
	f("version x", 2, `"x"`)
	f("version -o xml", 2, "--output=xml is unknown: give json or yaml")
	f("help x", 2, `invalid argument "x"`)
	f("--no-such-flag", 2, "unknown flag: --no-such-flag\nsee watchfan --help")
	f("--idle-timout=5s", 2, "--idle-timout: did you mean --idle-timeout?\nsee watchfan --help")
	f("--idle-tim=5s", 2, "did you mean --idle-timeout?\n")
	f("-secure-prt=5", 2, "did you mean --secure-port?\n")
	f("top --adm=x", 2, "did you mean --admin?\nsee watchfan top --help")
	f("top x", 2, `"x"`)
	f("explain 1 2", 2, "accepts at most 1 arg")
	f("explain --json --admin http://127.0.0.1:1 7", 1, "does not answer")
	f("top --once --admin http://127.0.0.1:1", 1, "does not answer")
	f("--idle-timeout 5", 2, `"--idle-timeout" flag: time: missing unit in duration "5"`)
	f("--profiling x", 2, `unknown command "x"`)
	f("--idle-timeout=-1s", 2, "--idle-timeout=-1s is too short")
	f("config --idle-timeout=-1s", 2, "--idle-timeout=-1s is too short")
	f("--log-level=loud", 2, "give debug, info, warn or error")
	f("-v=4 --log-level=info", 2, "[log-level v]")
	f("-v=loud", 2, "give a number, 0 for info to 4 for debug")
	f("--config=/no/such/file", 2, "--config: open /no/such/file")

	if _, stdout, _ := try(t, "__complete", "config", "--idle-t"); !strings.HasPrefix(stdout, "--idle-timeout\t") {
		t.Errorf("a shell completes --idle-t with %s", stdout)
	}
}

func TestVersionOutput(t *testing.T) {
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, into any) error { return yaml.UnmarshalStrict(b, into) },
	} {
		_, stdout, _ := try(t, "version", "-o", format)
		var got build
		if err := decode([]byte(stdout), &got); err != nil {
			t.Fatalf("%s: %v in\n%s", format, err, stdout)
		}
		if got.Version == "" || got.GitCommit == "" || got.GoVersion != runtime.Version() || got.License != "Apache-2.0" ||
			got.Platform != runtime.GOOS+"/"+runtime.GOARCH || got.KubernetesVersion != testedKubernetes ||
			got.Settings["GOARCH"] != runtime.GOARCH {
			t.Errorf("%s: got %+v", format, got)
		}
		if !slices.ContainsFunc(got.Modules, func(m builtModule) bool {
			return m.Path == "k8s.io/client-go" && strings.HasPrefix(m.Version, "v0.") && strings.HasPrefix(m.Sum, "h1:")
		}) {
			t.Errorf("%s: no module client-go in %v", format, got.Modules)
		}
	}
}

// The Kubernetes version that we say we are tested with is the dev cluster's.
func TestTestedKubernetes(t *testing.T) {
	content, err := os.ReadFile("deploy/devcluster/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (\S+)`).FindSubmatch(content)
	if m == nil || string(m[1]) != testedKubernetes {
		t.Errorf("the dev cluster is of %q, we say %s", m, testedKubernetes)
	}
}
