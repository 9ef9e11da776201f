package deploytest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A document's commands are in two kinds of fenced blocks. A script, sh, must exit with 0. In a
// block of the kind console, each line after "$ " is a command, and the lines up to the next
// command are all of its output. In the output, "…" is any text, and a line "…" is any number of
// lines. A last line "…" means that more output may follow: the command may continue, and gets a
// Ctrl-C when its section of the document ends.
//
// A block after a comment "<!-- not run: REASON -->" is not run. Of the kind text is what TestWalk reads.

// TestDocuments runs every command of the documents as it is written, in a copy of the repository.
func TestDocuments(t *testing.T) {
	if ranInNamespace(t) {
		return
	}
	for _, d := range []struct {
		name      string
		noCluster string // the section that finds no cluster; "*": none does
		commands  int    // at least
		notRun    int    // blocks
	}{
		{"README.md", "Try it", 8, 2},
		{"deploy/PROGRAM.md", "", 14, 0},
		{"deploy/README.md", "", 6, 1},
		{"deploy/RECIPES.md", "", 7, 1},
		{"CONTRIBUTING.md", "*", 5, 3},
	} {
		t.Run(d.name, func(t *testing.T) {
			blocks := readBlocks(t, d.name)
			w := newWorkshop(t)
			w.commit(t)
			commands, notRun := 0, 0
			var open []*terminal
			section := ""
			closeSection := func() {
				for _, term := range open {
					term.interrupt(t)
				}
				open = nil
			}
			defer closeSection()
			for _, b := range blocks {
				if b.section != section {
					closeSection()
					section = b.section
					if section != d.noCluster && d.noCluster != "*" {
						w.startCluster(t)
					}
				}
				if b.notRun != "" {
					notRun++
					t.Logf("%s:%d: not run: %s", d.name, b.line, b.notRun)
					continue
				}
				for _, c := range b.commands {
					commands++
					began := time.Now()
					term := w.run(t, c)
					open = append(open, term)
					if err := term.expect(c); err != nil {
						t.Fatalf("%s:%d: %v\n$ %s\n%s", d.name, c.line, err, c.text, term.output())
					}
					t.Logf("%s:%d: %s", d.name, c.line, time.Since(began).Round(100*time.Millisecond))
				}
			}
			if commands < d.commands || notRun != d.notRun {
				t.Errorf("%s: %d commands were run and %d blocks were not, want at least %d and %d", d.name, commands,
					notRun, d.commands, d.notRun)
			}
		})
	}
}

// Each relative link of a document leads to a file, and to a heading or an anchor in it.
func TestLinks(t *testing.T) {
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	link, links := regexp.MustCompile(`\]\(([^)\s]+)\)`), 0
	for name := range strings.Lines(string(list)) {
		name = filepath.Join("../..", strings.TrimSpace(name))
		for _, m := range link.FindAllStringSubmatch(readFile(t, name), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			links++
			file := filepath.Join(filepath.Dir(name), to)
			if to == "" {
				file = name
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if anchor != "" && !slices.Contains(anchors(readFile(t, file)), anchor) {
				t.Errorf("%s: %s has no #%s", name, file, anchor)
			}
		}
	}
	if links < 30 {
		t.Errorf("only %d links were found", links)
	}
}

// The pages that answer one question are short, and README.md leads to each. deploy/README.md stays one
// evening's reading.
func TestPages(t *testing.T) {
	for page, most := range map[string]int{"CLOUDS.md": 500, "PODS-API.md": 500, "TRY.md": 500, "WHY-NOT-WAIT.md": 500, "WILL-NOT.md": 500,
		"README.md": 6000} {
		if n := len(strings.Fields(readFile(t, "../"+page))); n > most {
			t.Errorf("deploy/%s has %d words, and should have %d", page, n, most)
		}
		if !strings.Contains(readFile(t, "../../README.md"), "(deploy/"+page) {
			t.Errorf("README.md does not lead to deploy/%s", page)
		}
	}
}

// anchors returns what links into a document may name: its headings, as GitHub writes them, and its
// own anchors.
func anchors(document string) (all []string) {
	for line := range strings.Lines(document) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all = append(all, strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(
				strings.ToLower(strings.TrimSpace(title)), ""), " ", "-"))
		}
		for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// block is one fenced block.
type block struct {
	section  string
	line     int
	notRun   string // why; empty: it is run
	commands []command
	text     []string // of a block of the kind text
}

// command is a typed line and its output.
type command struct {
	line    int
	text    string
	says    []string // with "…"; not used for a script
	script  bool
	runsOn  bool // the last line is "…"
	pattern *regexp.Regexp
}

var notRunComment = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// readBlocks returns the blocks of a document whose languages are sh and console.
func readBlocks(t *testing.T, name string) (blocks []block) {
	t.Helper()
	section, notRun, lines := "", "", strings.Split(readFile(t, "../../"+name), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == "") &&
			!strings.ContainsAny(lines[i], "─│▼") {
			t.Errorf("%s:%d: a block without a fence: give it a language", name, i+1)
		}
		if title, ok := strings.CutPrefix(lines[i], "## "); ok {
			section = title
		}
		if m := notRunComment.FindStringSubmatch(lines[i]); m != nil {
			notRun = m[1]
			continue
		}
		language, fenced := strings.CutPrefix(lines[i], "```")
		if !fenced {
			continue
		}
		b := block{section: section, line: i + 1, notRun: notRun}
		notRun = ""
		start := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		content := lines[start:min(i, len(lines))]
		switch language {
		case "sh":
			b.commands = []command{{line: start + 1, text: "set -euo pipefail\n" + strings.Join(content, "\n"),
				script: true}}
		case "console":
			for n, line := range content {
				typed, isCommand := strings.CutPrefix(line, "$ ")
				if isCommand {
					b.commands = append(b.commands, command{line: start + n + 1, text: typed})
					continue
				}
				if len(b.commands) == 0 {
					t.Fatalf("%s:%d: output without a command", name, start+n+1)
				}
				c := &b.commands[len(b.commands)-1]
				c.says = append(c.says, line)
			}
			for n := range b.commands {
				b.commands[n].compile()
			}
		case "text":
			b.text = content
		case "yaml":
			continue
		default:
			t.Errorf("%s:%d: a block in %q: take sh, console, yaml or text", name, start, language)
			continue
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// compile makes the pattern of the command's output.
func (c *command) compile() {
	var b strings.Builder
	for _, line := range c.says {
		if line == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				b.WriteString(".*")
			}
			b.WriteString(regexp.QuoteMeta(part))
		}
		b.WriteString(`\n`)
	}
	c.runsOn = len(c.says) > 0 && c.says[len(c.says)-1] == "…"
	end := "$"
	if c.runsOn {
		end = ""
	}
	c.pattern = regexp.MustCompile("^" + b.String() + end)
}

// workshop is a copy of the repository with the built programs, a home directory, and a cluster if
// a document needs one.
type workshop struct {
	dir, home, bin string
	cluster        bool
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{dir: t.TempDir(), home: t.TempDir(), bin: t.TempDir()}
	list, err := exec.Command("git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("list the repository's files: %v", err)
	}
	files := slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"), func(name string) bool {
		_, err := os.Lstat(filepath.Join(root, name))
		return errors.Is(err, os.ErrNotExist) // removed, and not yet committed
	})
	copyFiles(t, root, w.dir, append([]string{"--parents"}, files...)...)
	// After the sources, so that make finds them up to date.
	if err := os.Mkdir(filepath.Join(w.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"watchfan", "devcluster", "kubectl", "bench", "helm", "pod"} {
		copyFiles(t, root, filepath.Join(w.dir, "bin", name), "-T", binary(t, name))
	}
	for _, name := range []string{"helm", "kubectl"} {
		if err := os.Symlink(binary(t, name), filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// commit makes the workshop a repository of git with one commit, as a clean checkout is.
func (w *workshop) commit(t *testing.T) {
	t.Helper()
	term := w.run(t, command{text: "git init -q && git add . && git -c user.name=t -c user.email=t@example.com commit -qm all", script: true})
	if err := term.expect(command{script: true}); err != nil {
		t.Fatalf("%v\n%s", err, term.output())
	}
}

// copyFiles copies files of a folder, and symbolic links as such. They are as old as the copy.
func copyFiles(t *testing.T, from, to string, files ...string) {
	t.Helper()
	cmd := exec.Command("cp", append([]string{"-P", "--preserve=mode"}, append(files, to)...)...)
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// startCluster starts a cluster and writes ~/.kube/config, unless the workshop has a cluster.
func (w *workshop) startCluster(t *testing.T) {
	t.Helper()
	if w.cluster {
		return
	}
	w.cluster = true
	if err := os.MkdirAll(filepath.Join(w.home, ".kube"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := command{text: "exec bin/devcluster up --memory --unsafe-no-fsync --kubeconfig ~/.kube/config",
		says: []string{"…", "devcluster ready: …", "…"}}
	c.compile()
	term := w.run(t, c)
	t.Cleanup(func() { term.interrupt(t) })
	if err := term.expect(c); err != nil {
		t.Fatalf("%v\n%s", err, term.output())
	}
}

// terminal is a shell that runs one command.
type terminal struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the command has ended
	err    error         // how it ended; set before exited is closed

	mu   sync.Mutex
	said bytes.Buffer
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.Write(p)
}

// output returns the command's output until now, as whole lines. The last line gets an end if it
// has none, as with curl …/readyz.
func (t *terminal) output() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.said.String()
	if said != "" && !strings.HasSuffix(said, "\n") {
		said += "\n"
	}
	return said
}

func (w *workshop) run(t *testing.T, c command) *terminal {
	t.Helper()
	term := &terminal{cmd: exec.Command("bash", "-c", c.text), exited: make(chan struct{})}
	term.cmd.Dir = w.dir
	term.cmd.Env = append([]string{"HOME=" + w.home, "PATH=" + w.bin + ":" + os.Getenv("PATH")}, goEnvironment(t)...)
	term.cmd.Stdout, term.cmd.Stderr = term, term
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches all processes of the group
	term.cmd.WaitDelay = 2 * steady.Patience                   // time for processes that it leaves running
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		term.err = term.cmd.Wait()
		close(term.exited)
	}()
	return term
}

// goEnvironment returns the places of Go's caches, so that a command does not build everything anew for
// another home directory.
func goEnvironment(t *testing.T) (environment []string) {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		environment = append(environment, names[i]+"="+value)
	}
	return environment
}

// expect waits until the command's output is as the document shows it. Unless the command may
// continue, expect also waits for its successful end.
//
//testlint:allow timer the condition is looked at again
func (t *terminal) expect(c command) error {
	timeout := time.After(steady.Patience)
	for {
		select {
		case <-t.exited:
			switch {
			case t.err != nil:
				return t.err
			case !c.script && !c.pattern.MatchString(t.output()):
				return fmt.Errorf("it does not say\n%s\nbut", strings.Join(c.says, "\n"))
			}
			return nil
		case <-timeout:
			return fmt.Errorf("it does not end in time, or say\n%s\nbut", strings.Join(c.says, "\n"))
		case <-time.After(50 * time.Millisecond):
			if c.runsOn && c.pattern.MatchString(t.output()) {
				return nil
			}
		}
	}
}

// interrupt presses Ctrl-C if the command still runs. It waits until the command and all of its
// processes have ended.
func (t *terminal) interrupt(test *testing.T) {
	test.Helper()
	select {
	case <-t.exited:
		return
	default:
	}
	group := -t.cmd.Process.Pid
	if err := syscall.Kill(group, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		test.Error(err)
	}
	select {
	case <-t.exited:
	case <-time.After(steady.Patience): //testlint:allow timer it only ends what hangs
		_ = syscall.Kill(group, syscall.SIGKILL)
		test.Errorf("%v does not end within %s of Ctrl-C, or has left something running:\n%s", t.cmd.Args,
			steady.Patience, t.output())
	}
}

// ranInNamespace runs the test once more, in a network namespace of its own, where the ports that
// the documents name are free. It reports whether it did. In the namespace it returns false, and
// also if the system permits no namespace. Then the host's ports must be free.
func ranInNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "DEPLOYTEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		loopbackUp(t)
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	switch err := cmd.Start(); {
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOSPC):
		t.Logf("no network namespace (%v): the host's ports are used", err)
		return false
	case err != nil:
		t.Fatal(err)
	}
	err := cmd.Wait()
	t.Logf("in a network namespace:\n%s", output.String())
	if err != nil {
		t.Fatal(err)
	}
	return true
}

func loopbackUp(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}
