package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/assess"
	"github.com/watchfan/watchfan/proxy/diagnose"
)

const completionUsage = `watchfan completion prints a script with which a shell completes watchfan's commands and flags.

Usage: watchfan completion bash|zsh|fish

  source <(watchfan completion bash)          in ~/.bashrc
  source <(watchfan completion zsh)           in ~/.zshrc, behind compinit
  watchfan completion fish | source           in ~/.config/fish/config.fish
`

// shells write the completion of each shell.
var shells = map[string]func(io.Writer, []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}

// completion prints the script of a shell.
func completion(args []string) int {
	if len(args) == 1 && slices.Contains([]string{"-h", "--help", "-help"}, args[0]) {
		fmt.Print(completionUsage)
		return 0
	}
	if len(args) != 1 || shells[args[0]] == nil {
		return wrong(fmt.Errorf("watchfan completion %s: give one of %s", strings.Join(args, " "),
			strings.Join(slices.Sorted(maps.Keys(shells)), ", ")))
	}
	shells[args[0]](os.Stdout, completions())
	return 0
}

// completed is a command as shells complete it. The first one has no name: it serves.
type completed struct {
	name, about string
	words       []string // that may follow
	flags       []completedFlag
}

type completedFlag struct {
	name, about string
	kind        string // of its value; empty: it takes none
}

// dashed returns the flag as it is typed, with "=" if a value follows.
func (f completedFlag) dashed() string {
	name := "--"[:min(2, len(f.name))] + f.name
	if f.kind != "" && len(f.name) > 1 {
		name += "="
	}
	return name
}

// completions returns all commands with their flags, from the same tables that parse them.
func completions() []completed {
	serving := proxy.Flags()
	flags := map[string]*flag.FlagSet{
		"": serving, "check": serving, "config": serving, "assess": assess.Flags(), "top": diagnose.Flags("top"),
		"explain": diagnose.Flags("explain"), "version": versionFlags(new(string)),
	}
	words := map[string][]string{
		"completion": slices.Sorted(maps.Keys(shells)),
		"help":       slices.Concat(slices.Sorted(maps.Keys(commands)), proxy.FlagGroups()),
	}
	all := []completed{{}}
	for line := range strings.Lines(usage) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "watchfan" && commands[fields[1]] != nil {
			_, about, _ := strings.Cut(strings.TrimSpace(line), "  ")
			all = append(all, completed{name: fields[1], about: strings.TrimSpace(about)})
		}
	}
	for i := range all {
		c := &all[i]
		c.words = words[c.name]
		if set := flags[c.name]; set != nil {
			set.VisitAll(func(f *flag.Flag) { c.flags = append(c.flags, newCompletedFlag(f)) })
		}
		c.flags = append(c.flags, completedFlag{name: "help", about: "print help"})
	}
	return all
}

func newCompletedFlag(f *flag.Flag) completedFlag {
	kind, about := flag.UnquoteUsage(f)
	if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		kind = ""
	} else if kind == "" {
		kind = "VALUE"
	}
	about, _, _ = strings.Cut(strings.Join(strings.Fields(about), " "), "; ") // the first part is enough in a menu
	return completedFlag{name: f.Name, about: about, kind: kind}
}

func completeBash(w io.Writer, all []completed) {
	fmt.Fprint(w, `# bash completion of watchfan
_watchfan() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words
	COMPREPLY=()
	[[ $before != = && $current != = ]] || return # a flag's value: bash completes files
	case ${COMP_WORDS[1]} in
`)
	var names []string
	for _, c := range all[1:] {
		names = append(names, c.name)
		fmt.Fprintf(w, "\t%s) words=%q ;;\n", c.name, bashWords(&c))
	}
	fmt.Fprintf(w, "\t*) words=%q ;;\n\tesac\n", bashWords(&all[0]))
	fmt.Fprintf(w, "\t(( COMP_CWORD > 1 )) || [[ $current == -* ]] || words=%q\n", strings.Join(names, " "))
	fmt.Fprint(w, `	COMPREPLY=($(compgen -W "$words" -- "$current"))
	[[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -o default -F _watchfan watchfan
`)
}

func bashWords(c *completed) string {
	words := slices.Clone(c.words)
	for _, f := range c.flags {
		words = append(words, f.dashed())
	}
	return strings.Join(words, " ")
}

func completeZsh(w io.Writer, all []completed) {
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	escaped := strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)
	fmt.Fprint(w, "#compdef watchfan\n_watchfan() {\n\tlocal -a commands flags words_after\n\tcommands=(\n")
	for _, c := range all[1:] {
		fmt.Fprintf(w, "\t\t%s\n", quoted(c.name+":"+escaped.Replace(c.about)))
	}
	fmt.Fprint(w, `	)
	if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
		_describe command commands
		return
	fi
	case $words[2] in
`)
	for _, c := range append(all[1:len(all):len(all)], all[0]) {
		pattern := c.name
		if pattern == "" {
			pattern = "*"
		}
		fmt.Fprintf(w, "\t%s)\n\t\twords_after=(%s)\n\t\tflags=(\n", pattern, strings.Join(c.words, " "))
		for _, f := range c.flags {
			spec := f.dashed() + "[" + escaped.Replace(f.about) + "]"
			if f.kind != "" {
				spec += ":" + f.kind + ":_files"
			}
			fmt.Fprintf(w, "\t\t\t%s\n", quoted(spec))
		}
		fmt.Fprint(w, "\t\t)\n\t\t;;\n")
	}
	fmt.Fprint(w, "\tesac\n\t_arguments $flags \"*: :($words_after)\"\n}\ncompdef _watchfan watchfan\n")
}

func completeFish(w io.Writer, all []completed) {
	quoted := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	var others []string // commands with flags of their own
	for _, c := range all[1:] {
		if len(c.flags) < len(all[0].flags) {
			others = append(others, c.name)
		}
		fmt.Fprintf(w, "complete -c watchfan -n __fish_use_subcommand -f -a %s -d %s\n", c.name, quoted(c.about))
	}
	for _, c := range all {
		seen := "'__fish_seen_subcommand_from " + c.name + "'"
		if c.name == "" { // check and config have the same flags
			seen = "'not __fish_seen_subcommand_from " + strings.Join(others, " ") + "'"
		} else if !slices.Contains(others, c.name) {
			continue
		}
		if len(c.words) > 0 {
			fmt.Fprintf(w, "complete -c watchfan -n %s -f -a %s\n", seen, quoted(strings.Join(c.words, " ")))
		}
		for _, f := range c.flags {
			kind, value := "l", ""
			if len(f.name) == 1 {
				kind = "s"
			}
			if f.kind != "" {
				value = " -r"
			}
			fmt.Fprintf(w, "complete -c watchfan -n %s -%s %s%s -d %s\n", seen, kind, f.name, value, quoted(f.about))
		}
	}
}
