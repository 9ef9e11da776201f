package e2e_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const cachedList = "/api/v1/namespaces/default/configmaps?resourceVersion=0"

// TestAttacks sends each attack to both ports and to kube-apiserver. watchfan refuses what
// kube-apiserver refuses, answers each request at most once and never answers a smuggled one. Both
// leave the connection in the same state.
func TestAttacks(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	token := "Authorization: Bearer " + c.token(t, "admin") + "\n"
	ports := []struct {
		name, address, auth string
		tls                 bool
	}{
		{"kube-apiserver", strings.TrimPrefix(c.Ready.Server, "https://"), token, true},
		{"secure port", p.Ports.Secure, token, true},
		{"insecure port", p.Ports.Insecure, "", false},
	}
	gate := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for _, port := range ports {
		for _, a := range proxytest.Attacks(cachedList, port.auth) {
			want := a.Want
			if port.name == "kube-apiserver" && a.Theirs != "" {
				want = a.Theirs
			}
			if want == "waits" {
				continue // for a minute
			}
			wg.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				got, body, err := sendAttack(port.address, port.tls, a.Send, proxytest.WireText(sentinel, port.auth))
				if err != nil {
					t.Errorf("%s to the %s: %v", a.Name, port.name, err)
				} else if !matches(want, got) {
					t.Errorf("%s to the %s: %s, want %s; the last answer was %.300s", a.Name,
						port.name, got, want, body)
				}
			})
		}
	}
	wg.Wait()
	checkLog(t, p, "hidden", c.token(t, "admin"))
}

// checkLog fails the test if p's log holds a secret.
func checkLog(t *testing.T, p *watchfan, secrets ...string) {
	t.Helper()
	log, err := os.ReadFile(p.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(string(log), secret) {
			t.Errorf("the log holds %.6s…", secret)
		}
	}
}

func matches(want, got string) bool {
	codes, either := strings.CutSuffix(want, "any")
	return got == want || either && (got == codes+"open" || got == codes+"closed")
}

// sentinel follows each attack. Its answer shows that the connection could carry another request.
const sentinel = "GET /version HTTP/1.1\nHost: localhost\nAudit-ID: sentinel\nConnection: close\nAUTH\n"

// sendAttack returns the answers in the form of Attack.Want, and the last body.
func sendAttack(address string, secure bool, attack, sentinel string) (got string, last []byte, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	_ = c.SetDeadline(time.Now().Add(steady.Patience))
	if _, err := io.WriteString(c, attack+sentinel); err != nil && !errors.Is(err, syscall.ECONNRESET) &&
		!errors.Is(err, syscall.EPIPE) {
		return "", nil, err
	}
	var codes []string
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
		var network net.Error
		switch {
		case errors.As(err, &network) && network.Timeout():
			return "", nil, fmt.Errorf("no answer and no end after %v", codes)
		case err != nil:
			return strings.Join(append(codes, "closed"), " "), last, nil
		case resp.Header.Get("Audit-Id") == "sentinel":
			return strings.Join(append(codes, "open"), " "), last, nil
		case resp.Header.Get("Audit-Id") == "smuggled":
			codes = append(codes, "smuggled")
		default:
			codes = append(codes, fmt.Sprint(resp.StatusCode))
		}
		if last, err = io.ReadAll(resp.Body); err != nil {
			return "", nil, fmt.Errorf("body of answer %v: %w", codes, err)
		}
	}
}
