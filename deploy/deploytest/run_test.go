package deploytest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestRun tries make run as on a machine without a terminal.
func TestRun(t *testing.T) {
	if ranInNamespace(t) {
		return
	}
	w := newWorkshop(t)

	t.Run("no cluster, and two Ctrl-C", func(t *testing.T) {
		term := w.until(t, "make run", "Stop: Ctrl-C")
		said := term.output()
		for _, want := range []string{"This runs watchfan in front of a cluster, until Ctrl-C.\nIt starts in seconds.",
			"No cluster is configured: a dev cluster is started.\n", "Starting etcd and kube-apiserver.\n",
			"  write   bin/kubectl ", "  top     bin/watchfan top\n"} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
		if strings.Contains(said, "level=ERROR") {
			t.Errorf("an error in a normal run:\n%s", said)
		}
		if w.left(t) == 0 {
			t.Fatal("no process of the run is found")
		}
		group := -term.cmd.Process.Pid
		for range 2 {
			if err := syscall.Kill(group, syscall.SIGINT); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond) //testlint:allow timer somebody presses Ctrl-C twice
		}
		term.interrupt(t)
		w.awaitLeft(t, 0)
	})

	t.Run("a port is taken", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:8001") //testlint:allow port the network namespace is the test's own
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		w.fails(t, "make run", "Port 8001 is taken by another program, perhaps kubectl proxy or another watchfan.\n"+
			"Stop that, or choose another port: make run INSECURE_PORT=18001\n")
	})

	t.Run("CLUSTER=1 without a cluster", func(t *testing.T) {
		w.fails(t, "make run CLUSTER=1", "CLUSTER=1, but no cluster is configured: ~/.kube/config does not exist")
	})

	t.Run("a kubeconfig that leads nowhere", func(t *testing.T) {
		w.fails(t, "KUBECONFIG=/no/such make run", "no cluster is configured: $KUBECONFIG=/no/such does not exist: ")
	})

	w.startCluster(t)
	t.Run("a dev cluster is used as it is", func(t *testing.T) {
		said := w.says(t, "make run", "Stop: Ctrl-C")
		if !strings.Contains(said, "\ncontext: devcluster\n") || strings.Contains(said, "a dev cluster is started") {
			t.Error(said)
		}
	})

	// The same cluster under another name might be production.
	name := filepath.Join(w.home, ".kube", "config")
	content := readFile(t, name)
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(content, "devcluster", "production")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("a cluster without consent", func(t *testing.T) {
		said := w.says(t, "make run", "Stop: Ctrl-C")
		if !strings.Contains(said, "\ncontext: production\n") || !strings.Contains(said, "It is left alone, and a dev cluster is started. CLUSTER=1 serves it") {
			t.Error(said)
		}
	})
	for answer, want := range map[string]string{"y": "Requests without a token have your rights", "": "Starting etcd and kube-apiserver."} {
		t.Run("a cluster on a terminal, answered "+strconv.Quote(answer), func(t *testing.T) {
			before := w.left(t)
			// What the end of a terminal does must not depend on whether this test runs under nohup.
			said := w.says(t, "(echo "+answer+"; exec sleep 300) | env --default-signal=HUP script -qec 'make run' /dev/null", "Stop: Ctrl-C")
			if !strings.Contains(said, "Serve it? y, or n for a dev cluster of its own [n] ") || !strings.Contains(said, want) {
				t.Errorf("it does not ask, or does not say %q:\n%s", want, said)
			}
			w.awaitLeft(t, before)
		})
	}
	t.Run("a cluster with consent", func(t *testing.T) {
		said := w.says(t, "make run CLUSTER=1", "Stop: Ctrl-C")
		for _, want := range []string{"\ncontext: production\nserver:  https://", "\nuser:    ", "Requests without a token have your rights"} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
		if strings.Contains(said, " create ") {
			t.Errorf("it proposes a write:\n%s", said)
		}
	})
}

// TestRunRemovesOnlyItsOwn: a variable of the user is no folder that make run has made.
func TestRunRemovesOnlyItsOwn(t *testing.T) {
	theirs, path := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "make"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("bash", "../run.sh")
	// No port is taken that nobody can take.
	run.Env = append(os.Environ(), "TRY=", "try="+theirs, "PATH="+path+":"+os.Getenv("PATH"),
		"INSECURE_PORT=0", "SECURE_PORT=0", "ADMIN_PORT=0")
	if said, err := run.CombinedOutput(); err == nil || !strings.Contains(string(said), "The build failed.") {
		t.Fatalf("%v\n%s", err, said)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}

// until runs a command until it has said something.
func (w *workshop) until(t *testing.T, text, says string) *terminal {
	t.Helper()
	c := command{text: text, says: []string{"…", "…" + says + "…", "…"}}
	c.compile()
	term := w.run(t, c)
	if err := term.expect(c); err != nil {
		term.interrupt(t)
		t.Fatalf("%s: %v\n%s", text, err, term.output())
	}
	return term
}

// says runs a command until it has said something, ends it with Ctrl-C, and returns all that it has said.
func (w *workshop) says(t *testing.T, text, says string) string {
	t.Helper()
	term := w.until(t, text, says)
	term.interrupt(t)
	return term.output()
}

// fails runs a command that must fail at once, start no dev cluster, and say why.
func (w *workshop) fails(t *testing.T, text, says string) {
	t.Helper()
	term := w.run(t, command{text: text})
	steady.Receive(t, "end of "+text, term.exited)
	said := term.output()
	if term.err == nil || !strings.Contains(said, says) || strings.Contains(said, "dev cluster is started") || strings.Contains(said, "level=ERROR") {
		t.Errorf("%s: %v\n%s\nwant %s", text, term.err, said, says)
	}
}

// left returns the number of processes that run the workshop's binaries.
func (w *workshop) left(t *testing.T) (n int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if exe, err := os.Readlink(p); err == nil && strings.HasPrefix(exe, filepath.Join(w.dir, "bin")+"/") {
			n++
		}
	}
	return n
}

// awaitLeft waits until at most so many processes run the workshop's binaries.
func (w *workshop) awaitLeft(t *testing.T, most int) {
	t.Helper()
	steady.Until(t, "end of all processes after Ctrl-C", func() error {
		if n := w.left(t); n > most {
			return fmt.Errorf("%d are left, %d more than before", n, n-most)
		}
		return nil
	})
}
