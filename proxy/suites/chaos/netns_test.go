package chaos_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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
		_ = ip("link", "delete", l.near)
		_ = ip("netns", "delete", l.namespace)
	})
	for _, args := range [][]string{
		{"netns", "add", l.namespace},
		{"link", "add", l.near, "type", "veth", "peer", "name", l.far, "netns", l.namespace},
		{"address", "add", nearAddress + "/30", "dev", l.near},
		{"link", "set", l.near, "up"},
		{"-n", l.namespace, "address", "add", l.address + "/30", "dev", l.far},
		{"-n", l.namespace, "link", "set", l.far, "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, err
		}
	}
	return l, l.listen()
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// listen listens in the namespace. A socket belongs to the namespace of the thread that made it.
// The thread ends with the goroutine.
func (l *link) listen() (err error) {
	var listening sync.WaitGroup
	listening.Go(func() {
		runtime.LockOSThread() // and never unlocked
		var ns *os.File
		if ns, err = os.Open("/run/netns/" + l.namespace); err != nil {
			return
		}
		defer ns.Close()
		if err = os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)); err == nil {
			l.listener, err = net.Listen("tcp", l.address+":0")
		}
	})
	listening.Wait()
	return err
}

// set sets the far end up or down. While it is down, what is sent is lost, and neither end notices.
func (l *link) set(state string) error {
	return ip("-n", l.namespace, "link", "set", l.far, state)
}
