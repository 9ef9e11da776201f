package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// node is a network namespace that a link joins with this host. near are addresses of this host that
// the node reaches, far is its own. It needs root and the program ip.
type node struct {
	namespace string
	near      []string
	far       string
}

// newNode makes a node, or skips the test.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	pid := os.Getpid()
	n := &node{namespace: fmt.Sprintf("e2e-%d", pid)}
	at := func(host int) string { return fmt.Sprintf("10.214.%d.%d", pid>>5&255, pid<<3&255|host) } // of 8 addresses
	n.near, n.far = []string{at(1), at(2), at(3)}, at(4)
	near, far := fmt.Sprintf("ee%da", pid), fmt.Sprintf("ee%db", pid)
	t.Cleanup(func() {
		_ = proxytest.IP("link", "delete", near)
		_ = proxytest.IP("netns", "delete", n.namespace)
	})
	steps := [][]string{
		{"netns", "add", n.namespace},
		{"link", "add", near, "type", "veth", "peer", "name", far, "netns", n.namespace},
		{"link", "set", near, "up"},
		{"-n", n.namespace, "address", "add", n.far + "/29", "dev", far},
		{"-n", n.namespace, "link", "set", "lo", "up"},
		{"-n", n.namespace, "link", "set", far, "up"},
		{"-n", n.namespace, "route", "add", "default", "via", n.near[0]},
	}
	for _, address := range n.near {
		steps = append(steps, []string{"address", "add", address + "/29", "dev", near})
	}
	for _, step := range steps {
		if err := proxytest.IP(step...); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// dial connects from the node.
func (n *node) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = proxytest.InNamespace(n.namespace, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
