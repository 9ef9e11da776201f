package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestNodeHTTP2: fifty watches and fifty gets on one session of node's http2 bring what they bring
// at kube-apiserver. After SIGTERM the session gets GOAWAY and closes by itself. No stream is reset,
// and the watches that resume at another watchfan miss nothing and repeat nothing.
func TestNodeHTTP2(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--drain-duration=2s", "--shutdown-timeout=1m")
	p.waitReady(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "node-http2")
	const uri = "/api/v1/namespaces/node-http2/configmaps"
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("c%d", i))
		makeConfigMap(t, direct, "node-http2", names[i], "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := p.secure(t, c.token(t, "admin"))
	warm(t, []*target{first}, uri)
	first.close()
	since := fmt.Sprint(direct.version(t, uri))
	start := func(name string, servers ...string) *programOutput {
		return startProgram(t, name, exec.CommandContext(ctx, "node", append([]string{"testdata/http2.mjs", c.token(t, "admin"), uri, since,
			strings.Join(names, ",")}, servers...)...))
	}
	theirs := start("node at kube-apiserver", c.Ready.Server)
	ours := start("node at watchfan", "https://"+p.Ports.Secure, "https://"+sharedWatchfan(t).Ports.Secure)
	next := func(n int) {
		t.Helper()
		var lines [2][]string
		for range n {
			lines[0], lines[1] = append(lines[0], ours.next(t)), append(lines[1], theirs.next(t))
		}
		slices.Sort(lines[0])
		slices.Sort(lines[1])
		if diff := cmp.Diff(lines[1], lines[0]); diff != "" {
			t.Error(diff)
		}
	}
	write := func(turn string) {
		t.Helper()
		for _, name := range names {
			direct.patch(t, uri+"/"+name, fmt.Sprintf(`{"data":{"turn":%q}}`, turn))
		}
		next(len(names))
	}
	next(len(names) + 1) // the objects, and that all watches have begun
	write("before")
	admin := p.admin(t)
	for name, want := range map[string]float64{"watchfan_http2_connections": 1, "watchfan_watchers": 50} {
		steady.Until(t, name, func() error { // the first may take a moment to leave
			if got := admin.metric(t, name); got != want {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"goaway 0", "close"} {
		if got := ours.next(t); got != want {
			t.Fatalf("after SIGTERM %s prints %q, want %q", ours.name, got, want)
		}
	}
	write("after")
	p.awaitExit(t)
	cancel()
	_, _ = ours.cmd.Wait(), theirs.cmd.Wait()
}
