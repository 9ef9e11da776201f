package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// programWay is a way for programs of others: as the admin, with the server's certificate checked.
type programWay struct {
	*target
	authority string // file; "" trusts any
}

// programWays returns the ways straight to kube-apiserver and through the TLS port.
func programWays(t *testing.T, c *cluster, p *watchfan) (theirs, ours programWay) {
	t.Helper()
	return programWay{c.direct(t), c.Ready.CAFile}, programWay{p.secure(t, c.token(t, "admin")), p.certificate()}
}

// certificate returns the file with p's own certificate.
func (p *watchfan) certificate() string { return filepath.Join(filepath.Dir(p.Log), "watchfan.crt") }

// kubeconfig writes a kubeconfig for a user and returns the file. Nothing in it is about HTTP.
func (w programWay) kubeconfig(t *testing.T, user *api.AuthInfo) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters["cluster"] = &api.Cluster{Server: w.base, CertificateAuthority: w.authority, InsecureSkipTLSVerify: w.authority == ""}
	config.AuthInfos["user"] = user
	config.Contexts["context"] = &api.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// listeningAt returns the port of 127.0.0.1 at which a process listens.
func listeningAt(pid int) (string, error) {
	sockets, err := socketsOf(pid)
	for _, s := range sockets {
		if port, ok := strings.CutPrefix(s.local, "0100007F:"); ok && s.state == "0A" { // LISTEN
			number, err := strconv.ParseUint(port, 16, 16)
			return strconv.FormatUint(number, 10), err
		}
	}
	return "", errors.Join(err, fmt.Errorf("process %d does not listen", pid))
}

// tcpSocket is a line of /proc/PID/net/tcp: addresses and a state, in hexadecimal digits.
type tcpSocket struct{ local, remote, state string }

// socketsOf returns the TCP sockets of a process.
func socketsOf(pid int) (own []tcpSocket, err error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return nil, err
	}
	all := make(map[string]tcpSocket)
	for line := range bytes.Lines(table) {
		// sl local_address rem_address st … inode
		if f := strings.Fields(string(line)); len(f) > 9 {
			all["socket:["+f[9]+"]"] = tcpSocket{f[1], f[2], f[3]}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && all[to] != (tcpSocket{}) {
			own = append(own, all[to])
		}
	}
	return own, err
}

// programOutput is what a running program prints.
type programOutput struct {
	name   string
	cmd    *exec.Cmd
	lines  chan string // closed at its end
	stderr bytes.Buffer
}

func startProgram(t *testing.T, name string, cmd *exec.Cmd) *programOutput {
	t.Helper()
	out := &programOutput{name: name, cmd: cmd, lines: make(chan string, 1000)}
	cmd.Stderr = &out.stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = proxytest.Launch(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(out.lines)
		scanner := bufio.NewScanner(stdout)
		scanner.Buffer(nil, 4<<20)
		for scanner.Scan() {
			out.lines <- scanner.Text()
		}
	}()
	return out
}

// next returns the next line.
func (p *programOutput) next(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	select {
	case line, ok := <-p.lines:
		if !ok {
			t.Fatalf("%s has ended (%v): %s", p.name, p.cmd.Wait(), p.stderr.String())
		}
		return line
	case <-ctx.Done():
		t.Fatalf("%s prints nothing: %s", p.name, p.stderr.String())
	}
	return ""
}

// until returns the next lines up to the first that contains a text. Empty lines are left out.
func (p *programOutput) until(t *testing.T, text string) (lines []string) {
	t.Helper()
	for {
		line := p.next(t)
		if line != "" {
			lines = append(lines, line)
		}
		if strings.Contains(line, text) {
			return lines
		}
	}
}
