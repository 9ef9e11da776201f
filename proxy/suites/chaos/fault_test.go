package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// fault is one of the schedule. Its numbers are drawn with the schedule, so that a seed is a
// schedule.
type fault struct {
	kind    faultKind
	after   time.Duration // since the recovery from the fault before
	at      time.Duration // since the first, if that is later
	lasting time.Duration
	offset  time.Duration // of a clock
}

func (f fault) String() string {
	s := fmt.Sprintf("%.1fs later: %s", f.after.Seconds(), f.kind.name)
	if f.at > 0 {
		s = fmt.Sprintf("after %.1fs: %s", f.at.Seconds(), f.kind.name)
	}
	if f.kind.longest > 0 {
		s += fmt.Sprintf(" for %.1fs", f.lasting.Seconds())
	}
	if f.offset != 0 {
		s += fmt.Sprintf(" by %s", f.offset)
	}
	return s
}

// last waits while the fault lasts.
func (f fault) last() {
	time.Sleep(f.lasting) //testlint:allow timer a fault lasts
}

// faultKind is a kind of fault. inject injects one, and returns when it is over what proves that it
// happened.
type faultKind struct {
	name    string
	longest time.Duration // 0: the fault has no duration of its own
	inject  func(*suite, fault) (proof string, err error)
}

func faultKinds() []faultKind {
	return []faultKind{
		{"kube-apiserver killed", 0, func(s *suite, _ fault) (string, error) { return s.restartAPIServer("--kill") }},
		{"kube-apiserver restarted", 0, func(s *suite, _ fault) (string, error) { return s.restartAPIServer() }},
		{"kube-apiserver stopped", 12 * time.Second, func(s *suite, f fault) (string, error) {
			return s.freeze(s.apiserver(), f)
		}},
		{"watchfan killed", 0, func(s *suite, _ fault) (string, error) { return s.restartWatchfan(syscall.SIGKILL) }},
		{"watchfan restarted", 0, func(s *suite, _ fault) (string, error) { return s.restartWatchfan(syscall.SIGTERM) }},
		{"watchfan stopped", 12 * time.Second, func(s *suite, f fault) (string, error) {
			return s.freeze(s.watchfan.pid(), f)
		}},
		{"sibling stale", 0, func(s *suite, _ fault) (string, error) { return s.deceive(stale) }},
		{"sibling lies", 0, func(s *suite, _ fault) (string, error) {
			s.lies++
			return s.deceive(lies[s.lies%len(lies)])
		}},
		{"sibling killed", 0, (*suite).killSibling},
		{"cold herd", 15 * time.Second, (*suite).coldHerd},
		{"etcd compacted", 0, func(s *suite, _ fault) (string, error) { return s.compact() }},
		{"history forgotten", 0, (*suite).forgetHistory},
		{"connections reset", 0, func(s *suite, _ fault) (string, error) { return counted(s.relay.Reset()) }},
		{"connections forgotten", 0, func(s *suite, _ fault) (string, error) { return counted(s.relay.Forget()) }},
		{"network cut", 35 * time.Second, (*suite).cutLink},
		{"network silent", 35 * time.Second, (*suite).cutRelay},
		{"network slow", 10 * time.Second, func(s *suite, f fault) (string, error) { return s.slow(s.relay, f) }},
		{"clients' HTTP/2 reset", 0, func(s *suite, _ fault) (string, error) { return counted(s.entrance.Reset()) }},
		{"clients' HTTP/2 forgotten", 0, func(s *suite, _ fault) (string, error) { return counted(s.entrance.Forget()) }},
		{"clients' HTTP/2 slow", 10 * time.Second, func(s *suite, f fault) (string, error) { return s.slow(s.entrance, f) }},
		{"clients stalled", 12 * time.Second, (*suite).stallClients},
		{"clock jumped", 8 * time.Second, (*suite).jump},
	}
}

// schedule draws n faults: each kind once, in any order, then each once again.
func schedule(rng *rand.Rand, n int) []fault {
	var all []fault
	kinds := faultKinds()
	jumps := []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour}
	for len(all) < n {
		for _, i := range rng.Perm(len(kinds)) {
			f := fault{kind: kinds[i], after: time.Duration(200+rng.IntN(4000)) * time.Millisecond}
			draw := 0.05 + 0.95*rng.Float64()*rng.Float64() // more short faults than long ones
			f.lasting = time.Duration(draw * float64(f.kind.longest))
			if offset := jumps[rng.IntN(len(jumps))]; f.kind.name == "clock jumped" {
				f.offset = offset
			}
			all = append(all, f)
		}
	}
	return all
}

// errImpossible says that this machine can't have the fault.
var errImpossible = errors.New("impossible here")

// apiserver returns kube-apiserver's process.
func (s *suite) apiserver() int { return s.cluster.Ready.Pids["kube-apiserver"] }

func (s *suite) restartAPIServer(args ...string) (string, error) {
	before := s.apiserver()
	if err := s.cluster.RestartAPIServer(args...); err != nil {
		return "", err
	}
	if err := syscall.Kill(before, 0); !errors.Is(err, syscall.ESRCH) {
		return "", fmt.Errorf("kube-apiserver's process %d is still there", before)
	}
	return fmt.Sprintf("process %d is gone, %d answers", before, s.apiserver()), nil
}

func (s *suite) restartWatchfan(signal syscall.Signal) (string, error) {
	state, err := s.watchfan.end(signal)
	if err != nil {
		return "", err
	}
	status := state.Sys().(syscall.WaitStatus)
	if signal == syscall.SIGKILL && (!status.Signaled() || status.Signal() != syscall.SIGKILL) ||
		signal == syscall.SIGTERM && status.ExitStatus() != 0 {
		return "", fmt.Errorf("watchfan ended with %s:\n%s", state, proxytest.Tail(s.watchfan.log, 60))
	}
	if err := s.watchfan.alive(); err == nil {
		return "", errors.New("somebody answers in watchfan's place")
	}
	if err := s.watchfan.start(); err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d: %s, %d answers", state.Pid(), state, s.watchfan.pid()), nil
}

// freeze stops a process while a fault lasts.
func (s *suite) freeze(pid int, f fault) (string, error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	err := waitState(pid, 'T')
	f.last()
	if err == nil {
		err = waitState(pid, 'T')
	}
	return fmt.Sprintf("process %d was in state T", pid), errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
}

// waitState waits until a process is in a state, which takes hardly any time.
func waitState(pid int, want byte) (err error) {
	var state byte
	if !await(patience, func() bool {
		var content []byte
		if content, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			return true
		}
		i := strings.LastIndexByte(string(content), ')') // the name is in parentheses and may contain anything
		state = content[i+2]
		return state == want
	}) {
		err = fmt.Errorf("process %d is in state %c, want %c", pid, state, want)
	}
	return err
}

// compact makes etcd forget its history, and asks etcd for some of it as proof.
func (s *suite) compact() (string, error) {
	out, err := s.cluster.Command("compact")
	if err != nil {
		return "", err
	}
	var revision uint64
	if _, err := fmt.Sscanf(out, "compacted to revision %d", &revision); err != nil {
		return "", fmt.Errorf("devcluster compact said %q: %w", out, err)
	}
	resp, err := http.Post(s.cluster.Ready.EtcdEndpoint+"/v3/kv/range", "application/json",
		strings.NewReader(fmt.Sprintf(`{"key":"AA==","revision":"%d"}`, revision-1)))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct{ Message string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if !strings.Contains(answer.Message, "compacted") {
		return "", fmt.Errorf("etcd, asked for revision %d behind a compaction to %d, says %q", revision-1,
			revision, answer.Message)
	}
	return fmt.Sprintf("etcd: %q at %d", answer.Message, revision-1), nil
}

// forgetHistory makes watchfan miss changes that nobody remembers. While watchfan is stopped and
// cut off, changes are made, etcd is compacted, and another kube-apiserver starts, whose cache
// begins behind the changes. watchfan then has to list again.
func (s *suite) forgetHistory(fault) (proof string, err error) {
	pid := s.watchfan.pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	if err := waitState(pid, 'T'); err != nil {
		return "", err
	}
	if _, err := s.restartAPIServer("--kill"); err != nil {
		return "", err
	}
	from := s.truth.now()
	for range 20 { // the writers may be quiet
		if _, err := s.probe(context.Background(), "missed"); err != nil {
			return "", err
		}
	}
	compacted, err := s.compact()
	if err != nil {
		return "", err
	}
	restarted, err := s.restartAPIServer("--kill")
	return fmt.Sprintf("watchfan was stopped from before %d; %s; %s", from, compacted, restarted), err
}

// cutLink loses everything that is sent between watchfan and the relay.
func (s *suite) cutLink(f fault) (proof string, err error) {
	if s.noLink != nil {
		return "", fmt.Errorf("%w: %w", errImpossible, s.noLink)
	}
	if err := s.link.set("down"); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.link.set("up")) }()
	if conn, err := net.DialTimeout("tcp", s.relay.Address(), time.Second); err == nil {
		conn.Close()
		return "", errors.New("a connection came through")
	}
	f.last()
	return "no connection came through", nil
}

// cutRelay lets nothing pass the relay. Connections are accepted, and nobody answers.
func (s *suite) cutRelay(f fault) (string, error) {
	s.relay.Hold()
	defer s.relay.Release()
	before := s.relay.Held.Load()
	err := s.hear(func() bool { return s.relay.Held.Load() > before })
	f.last()
	return fmt.Sprintf("%d bytes were held", s.relay.Held.Load()-before), err
}

// hear causes changes that kube-apiserver sends to watchfan, until done reports true.
func (s *suite) hear(done func() bool) (err error) {
	if !await(patience, func() bool {
		if done() {
			return true
		}
		_, err = s.probe(context.Background(), "heard")
		return err != nil
	}) {
		err = errors.New("nothing was sent between kube-apiserver and watchfan")
	}
	return err
}

// slow delays what a relay carries.
func (s *suite) slow(relay *proxytest.Relay, f fault) (string, error) {
	before := relay.Delayed.Load()
	delay := 20*time.Millisecond + f.lasting/20
	relay.Delay(delay)
	defer relay.Delay(0)
	err := s.hear(func() bool { return relay.Delayed.Load() > before })
	f.last()
	return fmt.Sprintf("%d bytes came %s late", relay.Delayed.Load()-before, delay), err
}

// counted proves a fault of so many connections.
func counted(n int) (string, error) {
	if n == 0 {
		return "", errors.New("there was no connection")
	}
	return fmt.Sprintf("%d connections", n), nil
}

// stallClients makes the clients that stall read nothing.
func (s *suite) stallClients(f fault) (string, error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	err := s.hear(func() bool { return s.stalled.Load() > 0 })
	f.last()
	return fmt.Sprintf("%d clients did not read", s.stalled.Load()), err
}

// jump makes watchfan's clock jump, and jump back.
func (s *suite) jump(f fault) (proof string, err error) {
	pid := s.watchfan.pid()
	if err := jumpClock(pid, f.offset); err != nil {
		return "", fmt.Errorf("%w: %w", errImpossible, err)
	}
	defer func() { err = errors.Join(err, jumpClock(pid, 0)) }()
	body, err := s.watchfan.admin("/debug/lanes")
	if err != nil {
		return "", err
	}
	var page struct{ Time time.Time }
	if err := json.Unmarshal(body, &page); err != nil {
		return "", err
	}
	if ahead := time.Until(page.Time); (ahead - f.offset).Abs() > 10*time.Minute { //testlint:allow elapsed a clock's time of day
		return "", fmt.Errorf("watchfan's clock is %s ahead, want %s", ahead, f.offset)
	}
	f.last()
	return fmt.Sprintf("watchfan says it is %s", page.Time.UTC().Format(time.DateTime)), nil
}
