package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// kubectlWay is kubectl with one way to the cluster.
type kubectlWay struct {
	name, program string
	args          []string
	home          string // and its working directory
}

// newKubectl returns kubectl with arguments that name a server. No kubeconfig says more.
func newKubectl(t testing.TB, home, name string, args ...string) kubectlWay {
	t.Helper()
	empty := filepath.Join(home, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return kubectlWay{name, binary(t, "KUBECTL_BIN", "kubectl"), append([]string{"--kubeconfig", empty}, args...), home}
}

// command returns kubectl with more arguments, and no kubeconfig of the user's.
func (k kubectlWay) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program, append(k.args[:len(k.args):len(k.args)], args...)...)
	cmd.Env = append([]string{"HOME=" + k.home, "PATH=" + os.Getenv("PATH")}, proxytest.Detectors...)
	cmd.Dir = k.home
	return cmd
}

// run returns what kubectl prints, and its exit code.
func (k kubectlWay) run(ctx context.Context, args []string) (words string, err error) {
	ctx, cancel := context.WithTimeout(ctx, steady.Patience)
	defer cancel()
	cmd := k.command(ctx, args)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = ctx.Err() // it hangs, or has failed in its own words
	}
	return lastWords(out.String(), cmd), err
}

// lastWords is what a command has printed and its exit code, without what differs between two runs: ages and the
// columns that they push, the resourceVersion of a raw list, the names and times of temporary files, and whether the
// end of kubectl's own watch overtakes an event.
func lastWords(out string, cmd *exec.Cmd) string {
	out = endedWatches.ReplaceAllString(proxytest.WithoutNotices(out), "")
	out = kubectlAges.ReplaceAllString(listHead.ReplaceAllString(out, "$1"), "AGE")
	out = manyBlanks.ReplaceAllString(temporaryFiles.ReplaceAllString(out, "FILE"), "  ")
	return fmt.Sprintf("%s[exit %d]", out, cmd.ProcessState.ExitCode())
}

var (
	kubectlAges    = regexp.MustCompile(`\b\d+[smh](\d+[smh])?\b`)
	temporaryFiles = regexp.MustCompile(`/tmp/(LIVE|MERGED)-\S+(\t.*)?`)
	kubectlLog     = regexp.MustCompile(`(?m)^I\d{4} .*\n`)
	endedWatches   = regexp.MustCompile(`(?m)^[EI]\d{4} .*context canceled.*\n`)
	manyBlanks     = regexp.MustCompile(` {2,}`)
)

// sameWords runs kubectl on all ways, and compares what it prints. If there is before, each way finds the state that it
// makes.
func sameWords(t testing.TB, ways []kubectlWay, before func(), args ...string) {
	t.Helper()
	words, errs := make([]string, len(ways)), make([]error, len(ways))
	var running sync.WaitGroup
	for i, k := range ways {
		if before != nil {
			running.Wait()
			before()
		}
		running.Go(func() { words[i], errs[i] = k.run(t.Context(), args) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("kubectl %q: %v", args, err)
	}
	compareWords(t, ways, args, words)
}

func compareWords(t testing.TB, ways []kubectlWay, args, words []string) {
	t.Helper()
	for i, k := range ways {
		if words[i] != words[0] {
			t.Errorf("kubectl %q, %s, says\n%s\nwant\n%s", args, k.name, words[i], words[0])
		}
	}
}

// follower is a kubectl that waits for something or watches it, on all ways.
type follower struct {
	args     []string
	commands []*exec.Cmd
}

// follow starts kubectl on all ways, and waits until it watches.
func follow(t testing.TB, ways []kubectlWay, args ...string) *follower {
	t.Helper()
	f := &follower{args: append(args, "-v=6")} // which prints its requests
	for _, k := range ways {
		out, err := os.CreateTemp(k.home, "out")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := k.command(t.Context(), f.args)
		cmd.Stdout, cmd.Stderr = out, out
		if err := proxytest.Launch(cmd); err != nil {
			t.Fatal(err)
		}
		f.commands = append(f.commands, cmd)
	}
	f.await(t, "watch=true", f.printed)
	return f
}

// await waits until a text has come on all ways.
func (f *follower) await(t testing.TB, text string, so func(testing.TB, *exec.Cmd) string) {
	t.Helper()
	for _, cmd := range f.commands {
		steady.Until(t, fmt.Sprintf("%q from %q", text, cmd.Args), func() error {
			if got := so(t, cmd); !strings.Contains(manyBlanks.ReplaceAllString(got, " "), text) {
				return fmt.Errorf("it says\n%s", got)
			}
			return nil
		})
	}
}

// printed returns what a command has printed so far.
func (f *follower) printed(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := os.ReadFile(cmd.Stdout.(*os.File).Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// said is printed without the log.
func (f *follower) said(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	return kubectlLog.ReplaceAllString(f.printed(t, cmd), "")
}

// end waits for the end of all commands, and compares what they have said. It interrupts those that watch.
func (f *follower) end(t testing.TB, ways []kubectlWay) {
	t.Helper()
	var words []string
	for _, cmd := range f.commands {
		if slices.ContainsFunc(f.args, func(arg string) bool { return arg == "-w" || strings.HasPrefix(arg, "--watch") }) {
			_ = cmd.Process.Signal(os.Interrupt)
		}
		_ = cmd.Wait()
		words = append(words, lastWords(f.said(t, cmd), cmd))
	}
	compareWords(t, ways, f.args, words)
}
