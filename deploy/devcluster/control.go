package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The control socket takes one command per connection, as one line, and
// answers with one line: "ok" or what went wrong. The answer to stop is the
// end of the connection, when the process is gone.
const (
	stopCommand    = "stop"
	restartCommand = "restart-apiserver"
	killCommand    = "restart-apiserver --kill"
)

// controlTimeout is how long a client waits for its answer.
const controlTimeout = readyTimeout + apiserverGrace + etcdGrace

// runStop is the command stop. Nothing to stop is as good as stopped.
func runStop(args []string) error {
	d, err := parseDir("stop", args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	_, err = control(d, stopCommand)
	if errors.Is(err, errNotRunning) {
		fmt.Printf("devcluster: not running in %s\n", d)
		return nil
	}
	return err
}

// runRestartAPIServer is the command restart-apiserver.
func runRestartAPIServer(args []string) error {
	var kill bool
	d, err := parseDir("restart-apiserver", args, func(fs *flag.FlagSet) {
		fs.BoolVar(&kill, "kill", false, "kill kube-apiserver instead of stopping it cleanly")
	})
	if err != nil {
		return err
	}
	command := restartCommand
	if kill {
		command = killCommand
	}
	answer, err := control(d, command)
	switch {
	case err != nil:
		return err
	case answer == "":
		return errors.New("restart kube-apiserver: devcluster ended")
	case answer != "ok":
		return fmt.Errorf("restart kube-apiserver: %s", answer)
	}
	return nil
}

var errNotRunning = errors.New("no devcluster is running")

// control sends command to the devcluster in d and returns its answer.
func control(d Dir, command string) (string, error) {
	var conn net.Conn
	err := withSocketPath(d, func(path string) (err error) {
		conn, err = net.Dial("unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return "", fmt.Errorf("%w in %s", errNotRunning, d)
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(controlTimeout))
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return strings.TrimSpace(string(answer)), err
}

// listenControl opens the control socket. The caller holds the lock of d, so a
// socket that is there is a dead one.
func listenControl(d Dir) (l net.Listener, err error) {
	d.remove(controlSock)
	err = withSocketPath(d, func(path string) (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	return l, err
}

// withSocketPath calls f with a path of the control socket short enough for a
// socket address, which takes 107 bytes.
func withSocketPath(d Dir, f func(path string) error) error {
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSock))
}

// serveControl answers commands until l is closed.
func (c *Cluster) serveControl(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go c.serveCommand(conn)
	}
}

func (c *Cluster) serveCommand(conn net.Conn) {
	line, err := bufio.NewReader(io.LimitReader(conn, 100)).ReadString('\n')
	if err != nil {
		conn.Close()
		return
	}
	switch command := strings.TrimSpace(line); command {
	case stopCommand:
		c.stop()
		return // the connection stays open as long as this process
	case restartCommand, killCommand:
		if err := c.restartAPIServer(command == killCommand); err != nil {
			fmt.Fprintln(conn, err)
		} else {
			fmt.Fprintln(conn, "ok")
		}
	default:
		fmt.Fprintf(conn, "unknown command %q\n", command)
	}
	conn.Close()
}
