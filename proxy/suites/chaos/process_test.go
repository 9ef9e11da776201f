package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// watchfan is a watchfan that is started again and again, with the same arguments, ports and log.
type watchfan struct {
	program    string
	args       []string
	log        string
	ports      struct{ insecure, secure, admin int }
	relists    *relists
	deliveries deliveries // since anybody last asked

	mu      sync.Mutex
	running *proxytest.Process // the last, which may have ended
	faults  []string           // lines of the log that must not come
}

// startWatchfan starts another replica on free ports.
func (s *suite) startWatchfan(kubeconfig string, args ...string) *watchfan {
	s.t.Helper()
	p := &watchfan{program: s.program, log: filepath.Join(s.t.TempDir(), "watchfan.log"),
		relists: &relists{late: 10 * time.Second}}
	for _, port := range []*int{&p.ports.insecure, &p.ports.secure, &p.ports.admin} {
		*port = proxytest.FreePort(s.t) //testlint:allow port it is started again with the same one
	}
	p.args = append([]string{"--kubeconfig", kubeconfig, "--bind-address=127.0.0.1", "--client-ca-file", s.caFile,
		"--tls-cert-file", s.certFile, "--tls-private-key-file", s.keyFile,
		"--insecure-port", strconv.Itoa(p.ports.insecure), "--secure-port", strconv.Itoa(p.ports.secure), "--admin-port", strconv.Itoa(p.ports.admin)}, args...)
	if err := p.start(); err != nil {
		s.t.Fatal(err)
	}
	reading := s.running()
	reading.Go(func() { p.readLog(reading.ctx) })
	s.replicas = append(s.replicas, p)
	return p
}

func (p *watchfan) start() error {
	cmd := exec.Command(p.program, p.args...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	process, err := proxytest.StartProcess(cmd, p.log)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.running = process
	p.mu.Unlock()
	return process.Await(patience, p.alive)
}

// alive asks /livez.
func (p *watchfan) alive() error {
	_, err := p.admin("/livez")
	return err
}

// admin gets a page of the admin port.
func (p *watchfan) admin(path string) ([]byte, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
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

// process returns the process that runs, or ran last.
func (p *watchfan) process() *proxytest.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func (p *watchfan) pid() int { return p.process().Cmd.Process.Pid }

// end sends a signal that ends watchfan, and returns how it ended.
func (p *watchfan) end(signal syscall.Signal) (*os.ProcessState, error) {
	process := p.process()
	if err := process.End(signal, patience); err != nil {
		return nil, err
	}
	return process.Cmd.ProcessState, nil
}

// crashed returns an error if watchfan has ended, which nobody has caused.
func (p *watchfan) crashed() error {
	select {
	case <-p.process().Exited:
		return fmt.Errorf("watchfan has exited by itself:\n%s", proxytest.Tail(p.log, 60))
	default:
		return nil
	}
}

var (
	listedAgain = regexp.MustCompile(`msg=Listed resource=(\S+) encoding=(\S+) .*resourceVersion=(\d+) relisted=true`)
	forbidden   = []string{"DATA RACE", "panicked", "panic:", "fatal error:", "Upstream went back in time"}
)

// readLog follows the log for lists, and for lines that must not come.
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
		if err != nil { // the rest of the line is still to come
			if !pause(ctx, 20*time.Millisecond) {
				return
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
