package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asks have the shell name a line's completions, one a line. $1 is the script and the others are the
// words of the line; the last word is the one to complete.
var asks = map[string]string{
	"bash": `source "$1"; shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		compopt() { :; }
		_watchfan; printf '%s\n' "${COMPREPLY[@]}"`,
	"zsh": `compdef() { :; }
		_describe() { print -l -- ${(P)2} }
		_arguments() { print -l -- "$@" }
		source "$1"; shift
		words=("$@") CURRENT=$#
		_watchfan`,
	"fish": `source $argv[1]; complete -C (string join " " $argv[2..-1])`,
}

// Each shell, the real one, completes every command, and every flag that help lists.
func TestCompletion(t *testing.T) {
	program := binary(t, "watchfan")
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			t.Fatalf("watchfan %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	commands := all(regexp.MustCompile(`(?m)^  watchfan ([a-z]+) `), run("help"))
	flag := regexp.MustCompile(`(?m)^  (--?[a-z][a-z0-9-]*)`)
	if len(commands) < 7 || len(all(flag, run("help"))) < 50 {
		t.Fatalf("help lists the commands %v and the flags %v", commands, all(flag, run("help")))
	}
	for shell, ask := range asks {
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte(run("completion", shell)), 0o644); err != nil {
			t.Fatal(err)
		}
		complete := func(words ...string) []string {
			t.Helper()
			args := []string{"-c", ask}
			if shell != "fish" {
				args = append(args, shell)
			}
			cmd := exec.Command(shell, append(append(args, script), words...)...)
			cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s completes %q: %v\n%s", shell, words, err, out)
			}
			// Behind the name are "=", a description, or both.
			return all(regexp.MustCompile(`(?m)^(-{0,2}[a-z0-9-]+)`), string(out))
		}
		same := func(want []string, words ...string) {
			t.Helper()
			want = append(slices.Clone(want), "--help")
			slices.Sort(want)
			got := slices.DeleteFunc(complete(words...), func(s string) bool { return !strings.HasPrefix(s, "-") })
			if got = slices.Compact(slices.Sorted(slices.Values(got))); !slices.Equal(got, slices.Compact(want)) {
				t.Errorf("%s completes %q with\n%v\nwant\n%v", shell, words, got, want)
			}
		}
		for _, c := range commands {
			if got := complete("watchfan", ""); !slices.Contains(got, c) {
				t.Errorf("%s completes no %s, but %v", shell, c, got)
			}
		}
		same(all(flag, run("help")), "watchfan", "-")
		same(all(flag, run("help")), "watchfan", "config", "-")
		for _, c := range []string{"top", "explain", "assess"} {
			same(all(flag, run(c, "--help")), "watchfan", c, "-")
		}
	}
}

// all returns the first group of all matches.
func all(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
