package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// try runs a command line. It returns the exit code, standard output and standard error.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
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
	code = run(args)
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
	f("help config", 0, "Usage: watchfan config [flags]\n")
	f("config --help", 0, "or what is wrong with it.\n")
	f("assess --help", 0, "Usage: watchfan assess [flags]\n")
	f("check -h", 0, "Usage: watchfan check [flags]\n")
	f("help version", 0, "Usage: watchfan version")
	f("help help", 2, `no help on "help"`)
	f("version", 0, "tested with Kubernetes v1.")
	f("--version", 0, "tested with Kubernetes v1.")
	f("--idle-timeout=1s --version", 0, "tested with Kubernetes v1.")
	f("config --idle-timeout=90m", 0, "idleTimeout: 1h30m\n")

	f("completion --help", 0, "Usage: watchfan completion bash|zsh|fish")
	f("completion bash", 0, " --idle-timeout= ")
	f("completion zsh", 0, "'--idle-timeout=[DURATION for which")
	f("completion fish", 0, " -l idle-timeout -r -d 'DURATION for which")

	f("completion", 2, "give one of bash, fish, zsh")
	f("completion tcsh", 2, "watchfan completion tcsh: give one of bash, fish, zsh")
	f("verison", 2, `"verison" is no command: give one of assess, check, completion, config, explain, help, `)
	f("version x", 2, `version takes no argument, not "x"`)
	f("version -o xml", 2, "-o=xml is unknown: give json or yaml")
	f("help x", 2, "upstream, serving, authentication, authorization, caching, siblings, connections, limits, observability")
	f("--no-such-flag", 2, "there is no flag --no-such-flag\nsee watchfan --help")
	f("--idle-timout=5s", 2, "there is no flag --idle-timout: did you mean --idle-timeout?\nsee watchfan --help")
	f("--idle-timeout 5", 2, "--idle-timeout=5: give a duration as 30s or 10m; for seconds say 5s\nsee watchfan --help")
	f("--idle-tim=5s", 2, "there is no flag --idle-tim: did you mean --idle-timeout?\nsee watchfan --help")
	f("-secure-prt 5", 2, "there is no flag --secure-prt: did you mean --secure-port?\nsee watchfan --help")
	f("version -output", 2, "there is no flag --output")
	f("--profiling x", 2, `flags only, not "x"`)
	f("--idle-timeout=-1s", 2, "--idle-timeout=-1s is too short")
	f("config --idle-timeout=-1s", 2, "--idle-timeout=-1s is too short")
	f("--log-level=loud", 2, "give debug, info, warn or error")
	f("--log-level=info -v=4", 2, "conflicts with --log-level=info: give one of them")
	f("-v=4 --log-level=info", 2, "conflicts with -v=4: give one of them")
	f("-v=loud", 2, "give a number, 0 for info to 4 for debug")
	f("config -v=9 --log-level=debug", 0, "logLevel: debug\n")
	f("--config=/no/such/file", 2, "--config: open /no/such/file")
}

// Commands are told from flags, and end with 2 if they are called wrongly.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]int{
		"top --help": 0, "explain --help": 0, "top x": 2, "top --nope": 2, "explain 1 2": 2, "explain 1 --json 2": 2,
		"explain --json --admin http://127.0.0.1:1 7": 1, "top --once --admin http://127.0.0.1:1": 1,
		"explain 1 --admin http://127.0.0.1:1": 1,
	} {
		if got := run(strings.Fields(line)); got != want {
			t.Errorf("watchfan %s: exit code %d, want %d", line, got, want)
		}
	}
}

// Every command is explained.
func TestUsage(t *testing.T) {
	for name := range commands {
		if !strings.Contains(usage, "\n  watchfan "+name+" ") {
			t.Errorf("usage does not mention %s", name)
		}
	}
}

func TestVersionOutput(t *testing.T) {
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, into any) error { return yaml.UnmarshalStrict(b, into) },
	} {
		_, stdout, _ := try(t, "version", "-o", format)
		var got map[string]string
		if err := decode([]byte(stdout), &got); err != nil {
			t.Fatalf("%s: %v in\n%s", format, err, stdout)
		}
		if len(got) != 5 || got["version"] == "" || got["gitCommit"] == "" || got["goVersion"] != runtime.Version() ||
			got["platform"] != runtime.GOOS+"/"+runtime.GOARCH || got["kubernetesVersion"] != testedKubernetes {
			t.Errorf("%s: got %v", format, got)
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
