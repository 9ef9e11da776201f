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
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// programWay is a way for programs of others: as the admin, with the server's certificate checked.
type programWay struct {
	*target
	authority string // file
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
	config.Clusters["cluster"] = &api.Cluster{Server: w.base, CertificateAuthority: w.authority}
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

// curl returns curl with HTTP/2 as the admin.
func (w programWay) curl(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "curl", append([]string{"--silent", "--show-error", "--http2",
		"--cacert", w.authority, "--header", "Authorization: Bearer " + w.token}, args...)...)
}

// TestCurlHTTP2: curl --http2 gets the answers that it gets at kube-apiserver, on as many
// connections: sixty gets at once, a large upload, errors, a watch that ends, and one whose events
// come when they happen.
func TestCurlHTTP2(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	theirs, ours := programWays(t, c, p)
	createNamespaces(t, theirs.target, "curl")
	const uri = "/api/v1/namespaces/curl/configmaps"
	const objects = 60
	for i := range objects {
		makeConfigMap(t, theirs.target, "curl", fmt.Sprintf("c%d", i), "")
	}
	large := filepath.Join(t.TempDir(), "large")
	patch := fmt.Sprintf(`{"data":{"x":%q}}`, strings.Repeat("x", 900_000))
	if err := os.WriteFile(large, []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	since := fmt.Sprintf("%s?watch=1&resourceVersion=%d", uri, theirs.version(t, uri))
	var watches []*programOutput
	for _, w := range []programWay{theirs, ours} {
		watches = append(watches, startProgram(t, "curl at "+w.name, w.curl(ctx, "--no-buffer", w.base+since)))
	}
	for _, args := range [][]string{
		{uri + fmt.Sprintf("/c[0-%d]", objects-1), "--parallel", "--parallel-max", "50"},
		{uri + "/none"},
		{uri + "/c0", "--request", "PATCH", "--header", "Content-Type: application/merge-patch+json",
			"--data-binary", "@" + large},
		{uri + "/c0", "--compressed"},
		{since + "&timeoutSeconds=5"}, //testlint:allow timeout curl ends with the watch
		{"/version"},
	} {
		want, wantEnds := runCurl(ctx, t, theirs, args)
		got, gotEnds := runCurl(ctx, t, ours, args)
		if !slices.Equal(gotEnds, wantEnds) || !strings.HasPrefix(gotEnds[0], "HTTP 2, ") {
			t.Errorf("curl %q prints %q, want %q, and HTTP/2", args, gotEnds, wantEnds)
		}
		if len(want) != len(wantEnds) {
			t.Errorf("curl %q has got %d of %d answers", args, len(want), len(wantEnds))
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("curl %q gets %s as\n%.2000s\nwant\n%.2000s", args, name, got[name], want[name])
			}
		}
	}
	for i := range 20 {
		theirs.patch(t, uri+"/c1", fmt.Sprintf(`{"data":{"step":"%d"}}`, i))
		step := fmt.Sprintf(`"step":"%d"`, i)
		want, got := watches[0].until(t, step), watches[1].until(t, step)
		if !slices.Equal(got, want) {
			t.Fatalf("curl's watch prints\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, w := range watches {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// curlEnd is what curl prints behind each answer.
const curlEnd = "HTTP %{http_version}, %{http_code}, %{num_connects} connections\n"

// runCurl returns what curl gets for a path and arguments: the bodies by the last part of the path,
// and curlEnd of all of them.
func runCurl(ctx context.Context, t *testing.T, w programWay, args []string) (bodies map[string]string, ends []string) {
	t.Helper()
	dir := t.TempDir()
	cmd := w.curl(ctx, append([]string{w.base + args[0], "--write-out", curlEnd, "--output-dir", dir, "--remote-name"},
		args[1:]...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl %q at %s: %v: %s", args, w.name, err, stderr.String())
	}
	files, err := os.ReadDir(dir)
	bodies = make(map[string]string)
	for _, file := range files {
		var body []byte
		if body, err = os.ReadFile(filepath.Join(dir, file.Name())); err == nil {
			bodies[file.Name()] = string(body)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return bodies, slices.Sorted(strings.Lines(string(out)))
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

// until returns the next lines up to the first that contains a text. Empty lines are left out.
func (p *programOutput) until(t *testing.T, text string) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				err := p.cmd.Wait()
				t.Fatalf("%s has ended (%v) after %q, and printed no %s: %s", p.name, err, lines, text,
					p.stderr.String())
			}
			if line != "" {
				lines = append(lines, line)
			}
			if strings.Contains(line, text) {
				return lines
			}
		case <-ctx.Done():
			t.Fatalf("%s has printed %q, and no %s", p.name, lines, text)
		}
	}
}
