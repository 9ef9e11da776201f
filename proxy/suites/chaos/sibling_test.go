package chaos_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// sibling is another watchfan, from which the first is filled when it starts again. It answers
// through a server that can lie.
type sibling struct {
	watchfan *watchfan
	server   *httptest.Server
	lie      atomic.Pointer[lie]
	told     atomic.Int64 // seeds so far
	recorded sync.Map     // path → []string: its last truthful seed
}

// lie changes the lines of a seed. It returns false after a line that is the last.
type lie struct {
	name    string
	reasons []string                                                         // that watchfan may give for a list; "" if it is to be filled by the seed
	line    func(s *sibling, n int, line string) (changed string, more bool) // nil: nothing is changed
}

var (
	anyVersion = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

	truthful  = &lie{name: "it says the truth", reasons: []string{""}}
	breaksOff = &lie{"it breaks off", []string{"broken"}, func(_ *sibling, n int, line string) (string, bool) {
		return line[:len(line)/n], n < 2
	}}
	stale = &lie{name: "its state is old", reasons: []string{"", "too_old"}}
	lies  = []*lie{
		{"its state is in the future", []string{"ahead"}, func(_ *sibling, _ int, line string) (string, bool) {
			if strings.Contains(line, "BOOKMARK") {
				return later(line), true
			}
			return line, true
		}},
		{"an object is newer than its state", []string{"broken"}, func(_ *sibling, n int, line string) (string, bool) {
			if n == 1 {
				return later(line), true
			}
			return line, true
		}},
		breaksOff,
		{"it falls silent", []string{"slow"}, func(_ *sibling, n int, line string) (string, bool) {
			if n > 2 {
				return "", true
			}
			return line, true
		}},
	}
	killed = &lie{"it is killed", []string{"broken", "no_sibling"}, func(s *sibling, n int, line string) (string, bool) {
		if n == 1 {
			_, _ = s.watchfan.end(syscall.SIGKILL) // the fault proves it
		}
		return line, n < 2
	}}
)

// later makes a resourceVersion a million later.
func later(line string) string {
	return anyVersion.ReplaceAllStringFunc(line, func(found string) string {
		rv, _ := strconv.ParseUint(anyVersion.FindStringSubmatch(found)[1], 10, 64)
		return fmt.Sprintf(`"resourceVersion":"%d"`, rv+1_000_000)
	})
}

// startSibling starts a sibling that is straight at kube-apiserver.
func (s *suite) startSibling() *sibling {
	s.t.Helper()
	b := &sibling{watchfan: s.startWatchfan(s.cluster.Ready.Kubeconfigs["admin"], "--resident-resources=configmaps,widgets.example.com",
		"--config", s.quietConfig())}
	b.lie.Store(truthful)
	pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
	if err != nil {
		s.t.Fatal(err)
	}
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	b.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	b.server.StartTLS()
	s.t.Cleanup(func() {
		b.server.CloseClientConnections()
		b.server.Close()
	})
	return b
}

// address is where the sibling is asked.
func (s *sibling) address() string { return s.server.Listener.Addr().String() }

// serve answers as the sibling does, except for the lie.
func (s *sibling) serve(w http.ResponseWriter, r *http.Request) {
	to := r.Clone(r.Context())
	to.URL.Scheme, to.URL.Host, to.RequestURI = "https", fmt.Sprintf("127.0.0.1:%d", s.watchfan.ports.secure), ""
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(to)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if resp.StatusCode != http.StatusOK {
		return
	}
	lie, path := s.lie.Load(), r.URL.Path
	s.told.Add(1)
	if lie == stale {
		s.replay(w, r, path)
		return
	}
	var seed []string
	in := bufio.NewReader(resp.Body)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		seed = append(seed, line)
		if strings.Contains(line, "BOOKMARK") && lie == truthful {
			s.recorded.Store(path, slices.Clone(seed))
		}
		more := true
		if lie.line != nil {
			line, more = lie.line(s, n, line)
		}
		_, _ = w.Write([]byte(line))
		_ = http.NewResponseController(w).Flush()
		if !more {
			panic(http.ErrAbortHandler)
		}
	}
}

// replay sends the last seed again.
func (s *sibling) replay(w http.ResponseWriter, r *http.Request, path string) {
	if seed, ok := s.recorded.Load(path); ok {
		_, _ = io.WriteString(w, strings.Join(seed.([]string), ""))
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// deceive restarts watchfan while its sibling lies, and waits for what watchfan makes of it.
func (s *suite) deceive(l *lie) (proof string, err error) {
	if !s.modern {
		return "", fmt.Errorf("%w: kube-apiserver has no watch-lists, so nothing is seeded", errImpossible)
	}
	if l == stale {
		if proof, err := s.reseed(truthful); err != nil {
			return proof, err
		}
		if _, err := s.probe(s.t.Context(), "newer than the sibling"); err != nil {
			return "", err
		}
	}
	return s.reseed(l)
}

// reseed restarts watchfan beside a sibling that lies, or does not. The sibling may have
// lost kube-apiserver in the fault before, and then sends nothing. So there are several attempts.
func (s *suite) reseed(l *lie) (proof string, err error) {
	before := s.sibling.told.Load()
	s.sibling.lie.Store(l)
	defer s.sibling.lie.Store(truthful)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := s.restartWatchfan(syscall.SIGKILL); err != nil {
			return "", err
		}
		series, err := s.noticed(l.reasons)
		if err != nil || series != "" && s.sibling.told.Load() > before {
			return l.name + ": " + series, err
		}
	}
	return "", fmt.Errorf("%s: watchfan has noticed nothing of %q:\n%s", l.name, l.reasons, proxytest.Tail(s.watchfan.log, 20))
}

// noticed waits until watchfan has had one of the reasons, and returns what its metrics say; "" if
// it has not soon.
func (s *suite) noticed(reasons []string) (series string, err error) {
	await(15*time.Second, func() bool {
		var page []byte
		if page, err = s.watchfan.admin("/metrics"); err != nil {
			return true
		}
		for _, reason := range reasons {
			metric, label := "watchfan_seed_failures_total", fmt.Sprintf("reason=%q", reason)
			if reason == "" {
				metric, label = "watchfan_lanes_filled_total", `source="sibling"`
			}
			if n := proxytest.SumMetric(string(page), metric, label); n > 0 {
				series = fmt.Sprintf("%s{%s} is %v", metric, label, n)
			}
		}
		return series != ""
	})
	return series, err
}

// killSibling kills the sibling while it fills watchfan, and starts it again.
func (s *suite) killSibling(fault) (proof string, err error) {
	pid := s.sibling.watchfan.pid()
	if proof, err = s.deceive(killed); errors.Is(err, errImpossible) {
		return "", err
	}
	gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) } // soon: another lane may have noticed first
	if err == nil && !await(patience, gone) {
		err = fmt.Errorf("the sibling's process %d is still there", pid)
	}
	return proof, errors.Join(err, s.sibling.watchfan.start())
}
