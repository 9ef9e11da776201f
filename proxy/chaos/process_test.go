package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built returns the path of a program that make builds.
func built(t testing.TB, env, name string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		path = filepath.Join("..", "..", "bin", name)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not built (%v), and in CI the fault suite must run: make chaos builds it", name, err)
		}
		t.Skipf("%s is not built (%v): run make chaos, which builds it, or set %s", name, err, env)
	}
	return path
}

// launch starts a process so that it dies with this one. The kernel ties that to the thread that forked, so one thread
// does all of it and never ends.
func launch(cmd *exec.Cmd) error {
	launcher.once.Do(func() {
		launcher.c = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range launcher.c {
				f()
			}
		}()
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errc := make(chan error)
	launcher.c <- func() { errc <- cmd.Start() }
	return <-errc
}

var launcher struct {
	once sync.Once
	c    chan func()
}

// cluster is a devcluster: etcd and kube-apiserver.
type cluster struct {
	program, dir string
	cmd          *exec.Cmd
	exited       chan struct{}
	ready        readyFile
}

// readyFile is what devcluster writes once clients may come.
type readyFile struct {
	Server       string            `json:"server"`
	CAFile       string            `json:"caFile"`
	Kubeconfigs  map[string]string `json:"kubeconfigs"`
	TokenFiles   map[string]string `json:"tokenFiles"`
	EtcdEndpoint string            `json:"etcdEndpoint"`
	Pids         map[string]int    `json:"pids"`
}

func startCluster(t *testing.T, program string) *cluster {
	t.Helper()
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log, err := os.Create(filepath.Join(dir, "devcluster.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := &cluster{program: program, dir: dir, exited: make(chan struct{})}
	c.cmd = exec.Command(program, "--dir", dir, "--unsafe-no-fsync", "--apiserver-arg", "shutdown-watch-termination-grace-period=2s")
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := launch(c.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.exited:
		case <-time.After(time.Minute):
			_ = c.cmd.Process.Kill()
			t.Error("devcluster did not stop within a minute of SIGTERM")
		}
	})
	if err := c.waitReady(); err != nil {
		t.Fatalf("%v\n%s", err, tail(log.Name(), 40))
	}
	return c
}

func (c *cluster) waitReady() error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		content, err := os.ReadFile(filepath.Join(c.dir, "ready"))
		if err == nil && json.Unmarshal(content, &c.ready) == nil {
			return nil
		}
		select {
		case <-c.exited:
			return errors.New("devcluster has exited")
		default:
		}
	}
	return fmt.Errorf("devcluster is not ready after %s", patience)
}

// command runs one of devcluster's commands and returns what it prints.
func (c *cluster) command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.program, append(args, "--dir", c.dir)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("devcluster %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (c *cluster) token(user string) (string, error) {
	token, err := os.ReadFile(c.ready.TokenFiles[user])
	return strings.TrimSpace(string(token)), err
}

// pid is kube-apiserver's.
func (c *cluster) pid() int { return c.ready.Pids["kube-apiserver"] }

// watchfan is a watchfan that is started again and again, with the same arguments and ports, and one log.
type watchfan struct {
	program     string
	args        []string
	log         string
	certificate string // of the secure port; made at the first start, and kept
	ports       struct{ insecure, secure, admin int }
	relists     *relists

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	faults []string // what the log says that it must not
}

// startWatchfan starts it on free ports.
func startWatchfan(t *testing.T, program, kubeconfig string, args ...string) *watchfan {
	t.Helper()
	dir := t.TempDir()
	p := &watchfan{program: program, log: filepath.Join(dir, "watchfan.log"), certificate: filepath.Join(dir, "watchfan.crt"), relists: &relists{late: 10 * time.Second}}
	var err error
	for _, port := range []*int{&p.ports.insecure, &p.ports.secure, &p.ports.admin} {
		if *port, err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	p.args = append([]string{"--kubeconfig", kubeconfig, "--bind-address=127.0.0.1", "--cert-dir", dir,
		"--insecure-port", strconv.Itoa(p.ports.insecure), "--secure-port", strconv.Itoa(p.ports.secure), "--admin-port", strconv.Itoa(p.ports.admin)}, args...)
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() { p.readLog(ctx) })
	t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// freePort returns a port that is free, and outside of the range in which the kernel gives ports to clients: a client that dials a port of that
// range while nobody listens may come to be connected to itself.
func freePort() (int, error) {
	for range 100 {
		port := 15000 + int(time.Now().UnixNano()/1000)%15000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}

func (p *watchfan) start() error {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	if err := launch(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := p.alive()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("watchfan has exited:\n%s", tail(p.log, 40))
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("watchfan does not answer: %w\n%s", err, tail(p.log, 40))
		}
	}
}

// alive asks /livez.
func (p *watchfan) alive() error {
	_, err := p.admin("/livez")
	return err
}

// admin gets a page of the admin port.
func (p *watchfan) admin(path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", p.ports.admin, path), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d", path, resp.StatusCode)
	}
	return body, err
}

func (p *watchfan) process() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.exited
}

// end sends a signal that ends watchfan, and returns how it ended.
func (p *watchfan) end(signal syscall.Signal) (*os.ProcessState, error) {
	cmd, exited := p.process()
	if err := cmd.Process.Signal(signal); err != nil {
		return nil, err
	}
	select {
	case <-exited:
		return cmd.ProcessState, nil
	case <-time.After(patience):
		_ = cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
		select {
		case <-exited:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
		}
		return nil, fmt.Errorf("watchfan did not end within %s of %s:\n%s", patience, signal, tail(p.log, 100))
	}
}

// crashed reports whether watchfan has ended when nobody has asked it to. It is asked between faults.
func (p *watchfan) crashed() error {
	_, exited := p.process()
	select {
	case <-exited:
		return fmt.Errorf("watchfan has exited by itself:\n%s", tail(p.log, 60))
	default:
		return nil
	}
}

var (
	listedAgain = regexp.MustCompile(`msg=Listed resource=(\S+) encoding=(\S+) .*resourceVersion=(\d+) relisted=true`)
	forbidden   = []string{"DATA RACE", "panicked", "panic:", "fatal error:", "Upstream went back in time"}
)

// readLog follows the log: what it says of lists, and what it must not say.
func (p *watchfan) readLog(ctx context.Context) {
	file, err := os.Open(p.log)
	if err != nil {
		p.fault(err.Error())
		return
	}
	defer file.Close()
	in := bufio.NewReader(file)
	var line []byte
	for {
		part, err := in.ReadBytes('\n')
		line = append(line, part...)
		if err != nil { // the rest of the line is to come
			select {
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		if m := listedAgain.FindSubmatch(line); m != nil {
			p.relists.add(string(m[1]), string(m[2]), parseVersion(string(m[3])))
		}
		for _, bad := range forbidden {
			if bytes.Contains(line, []byte(bad)) {
				p.fault(string(line))
			}
		}
		line = line[:0]
	}
}

func (p *watchfan) fault(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, line)
}

func (p *watchfan) logFaults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
