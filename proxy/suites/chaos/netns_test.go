package chaos_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// link is a pair of network interfaces, one of them in a network namespace in which the relay
// listens. What is sent over it can be lost. It needs root and the program ip.
type link struct {
	namespace, near, far string
	address              string // of the far end
	listener             net.Listener
}

// newLink makes a link, or says why the machine can't have one.
func newLink(t *testing.T) (*link, error) {
	t.Helper()
	pid := os.Getpid()
	l := &link{
		namespace: fmt.Sprintf("chaos-%d", pid), near: fmt.Sprintf("ch%da", pid), far: fmt.Sprintf("ch%db", pid),
		address: fmt.Sprintf("10.213.%d.%d", pid>>6&255, pid<<2&255|2),
	}
	subnet := l.address[:strings.LastIndexByte(l.address, '.')+1]
	nearAddress := fmt.Sprintf("%s%d", subnet, pid<<2&255|1)
	t.Cleanup(func() {
		_ = proxytest.IP("link", "delete", l.near)
		_ = proxytest.IP("netns", "delete", l.namespace)
	})
	for _, args := range [][]string{
		{"netns", "add", l.namespace},
		{"link", "add", l.near, "type", "veth", "peer", "name", l.far, "netns", l.namespace},
		{"address", "add", nearAddress + "/30", "dev", l.near},
		{"link", "set", l.near, "up"},
		{"-n", l.namespace, "address", "add", l.address + "/30", "dev", l.far},
		{"-n", l.namespace, "link", "set", l.far, "up"},
	} {
		if err := proxytest.IP(args...); err != nil {
			return nil, err
		}
	}
	return l, l.listen()
}

// listen listens in the namespace.
func (l *link) listen() error {
	return proxytest.InNamespace(l.namespace, func() (err error) {
		l.listener, err = net.Listen("tcp", l.address+":0")
		return err
	})
}

// set sets the far end up or down. While it is down, what is sent is lost, and neither end notices.
func (l *link) set(state string) error {
	return proxytest.IP("-n", l.namespace, "link", "set", l.far, state)
}
