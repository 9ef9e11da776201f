package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// insideVariable has the file of an inside. The program then is in the pod's namespaces.
const insideVariable = "DEVCLUSTER_POD"

// inside is what the process in the pod's namespaces finds.
type inside struct {
	Hosts    string            // file for /etc/hosts
	Account  string            // folder for accountPath
	Services map[string]string // sockets by Services' addresses
}

// namespaces returns those of a pod: a network and mounts of its own.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// runInside makes the namespaces those of the pod, and runs a command, or an informer without one.
func runInside(file string, command []string) error {
	var in inside
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &in)
	}
	if err == nil {
		err = errors.Join(in.mount(), in.connect(), os.Unsetenv(insideVariable))
	}
	if err != nil {
		return err
	}
	if len(command) == 0 {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return (&informer{out: os.Stdout}).run(ctx)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// mount puts the pod's files where its programs look for them.
func (in *inside) mount() error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(in.Hosts, "/etc/hosts", "", unix.MS_BIND, ""),
		unix.Mount("tmpfs", "/var/run", "tmpfs", 0, ""),
		os.MkdirAll(accountPath, 0o700),
		unix.Mount(in.Account, accountPath, "", unix.MS_BIND, ""))
}

// connect gives the loopback interface the Services' addresses, and connects their port 443 to the
// sockets.
func (in *inside) connect() error {
	for address, socket := range in.Services {
		ip, err := netip.ParseAddr(address)
		if err == nil {
			err = addAddress(ip)
		}
		if err != nil {
			return fmt.Errorf("add %s: %w", address, err)
		}
		l, err := (&net.ListenConfig{Control: freely}).Listen(context.Background(), "tcp", net.JoinHostPort(address, "443"))
		if err != nil {
			return err
		}
		go forward(l, "unix", socket)
	}
	return nil
}

// listenUnix connects a socket, which is in reach of other network namespaces, to an address.
func listenUnix(socket, to string) error {
	l, err := net.Listen("unix", socket)
	if err == nil {
		go forward(l, "tcp", to)
	}
	return err
}

// forward copies what comes to a listener to connections of its own, until the process ends.
func forward(from net.Listener, network, to string) {
	for {
		near, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := dial(network, to)
			if err != nil {
				return
			}
			defer far.Close()
			var copying sync.WaitGroup
			copying.Go(func() { _, _ = io.Copy(far, near); _ = far.SetDeadline(time.Now()) })
			_, _ = io.Copy(near, far)
			_ = near.SetDeadline(time.Now())
			copying.Wait()
		}()
	}
}

// dial waits for a second until something listens: kube-proxy would have another endpoint, and a client
// must not take its connection for one that was broken.
func dial(network, to string) (c net.Conn, err error) {
	for range 100 {
		if c, err = net.Dial(network, to); !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return c, err
}

// freely lets a socket have an IPv6 address that the kernel still makes sure of (ip(7), IP_FREEBIND).
func freely(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
	return errors.Join(err, set)
}

// addAddress adds an address to the loopback interface (netdevice(7)). An IPv4 address brings its
// whole class.
func addAddress(ip netip.Addr) error {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	socket, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	if ip.Is6() {
		request := struct { // in6_ifreq
			ip     [16]byte
			prefix uint32
			index  int32
		}{ip.As16(), 128, 1}
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCSIFADDR,
			uintptr(unsafe.Pointer(&request)))
		if e != 0 {
			return e
		}
		return nil
	}
	text := ip.String()
	alias, err := unix.NewIfreq("lo:" + strings.ReplaceAll(text[max(0, len(text)-6):], ".", "x")) // each has one of its own
	if err == nil {
		err = alias.SetInet4Addr(ip.AsSlice())
	}
	if err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFADDR, alias)
}
