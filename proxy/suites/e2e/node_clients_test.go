package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNodeClients: npm's ws, with its token among the subprotocols, and Kubernetes' own client for
// Node see the same events through watchfan as at kube-apiserver, and its watches end properly.
func TestNodeClients(t *testing.T) {
	parallel(t)
	dir := binary(t, "NODE_CLIENTS", "node-clients")
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "node-clients")
	const uri = "/api/v1/namespaces/node-clients/configmaps"
	warm(t, []*target{p.plain(t)}, uri) // a lane may know no older resourceVersions than its own
	query := fmt.Sprintf("resourceVersion=%d", direct.version(t, uri))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clients := make(map[string][]*programOutput) // kube-apiserver's first
	for _, client := range []string{"ws", "kubernetes"} {
		for _, way := range []*target{direct, p.secure(t, direct.token)} {
			n := startProgram(t, client+" at "+way.name,
				exec.CommandContext(ctx, "node", filepath.Join(dir, "watch.mjs"), client, way.base, uri, query, way.token))
			if clients[client] = append(clients[client], n); client == "ws" {
				if got := n.next(t); got != "pong hello" {
					t.Errorf("%s: a ping is answered with %q", n.name, got)
				}
			}
		}
	}
	direct.create(t, uri, `{"metadata":{"name":"o"}}`)
	for i := range 10 {
		direct.patch(t, uri+"/o", fmt.Sprintf(`{"data":{"step":"%d"}}`, i))
	}
	direct.remove(t, uri+"/o")
	const events = 12
	for _, pair := range clients {
		var want []string
		for i, n := range pair {
			var got []string
			for range events {
				got = append(got, n.next(t))
			}
			if i == 0 {
				want = got
			} else if !slices.Equal(got, want) || !strings.HasPrefix(got[events-1], "DELETED o ") {
				t.Errorf("%s prints\n%s\nwant\n%s", n.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total", `verb="watch"`); n != 0 {
		t.Errorf("%v watches were passed through", n)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]string{"ws": "end 1000 ", "kubernetes": "end "} {
		n := clients[client][1]
		if got := n.next(t); got != want {
			t.Errorf("%s: the last line is %q, want %q", n.name, got, want)
		}
	}
	cancel() // kube-apiserver's
	for _, pair := range clients {
		for _, n := range pair {
			_ = n.cmd.Wait()
		}
	}
}
