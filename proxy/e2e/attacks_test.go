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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
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
		{"secure port", p.ports.Secure, token, true},
		{"insecure port", p.ports.Insecure, "", false},
	}
	gate := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for _, port := range ports {
		for _, a := range proxytest.Attacks(cachedList, port.auth) {
			if (a.Theirs == "") != (a.Why == "") || strings.Contains(a.Want, "smuggled") {
				t.Errorf("%s: the table says why watchfan differs from kube-apiserver, only where it does, and never "+
					"wants a smuggled answer", a.Name)
			}
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

// TestAttackIdentities: whatever the headers of a stranger say, the request is made as the owner of
// its token, through watchfan as at kube-apiserver.
func TestAttackIdentities(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	const admin = "system:masters"
	bearer := "Authorization: Bearer " + c.token(t, "user")
	for name, lines := range map[string]string{
		"plain":                       bearer,
		"name in capitals":            strings.ToUpper("authorization") + strings.TrimPrefix(bearer, "Authorization"),
		"scheme in capitals":          "Authorization: BEARER " + c.token(t, "user"),
		"many blanks":                 "Authorization:   Bearer  " + c.token(t, "user"),
		"X-Remote-User":               bearer + "\nX-Remote-User: admin\nX-Remote-Group: " + admin,
		"X-Remote-User alone":         "X-Remote-User: admin\nX-Remote-Group: " + admin,
		"x-rEMOTE-uSER":               bearer + "\nx-rEMOTE-uSER: admin\nx-rEMOTE-gROUP: " + admin,
		"X_Remote_User":               bearer + "\nX_Remote_User: admin\nX_Remote_Group: " + admin,
		"X-Remote-Extra":              bearer + "\nX-Remote-User: admin\nX-Remote-Extra-Scopes: all",
		"X-Remote-User in Connection": bearer + "\nX-Remote-User: admin\nConnection: X-Mine",
		"impersonation":               bearer + "\nImpersonate-User: admin\nImpersonate-Group: " + admin,
		"impersonation, odd case":     bearer + "\niMPERSONATE-uSER: admin",
		"impersonation, underscores":  bearer + "\nImpersonate_User: admin",
		"impersonation of a group":    bearer + "\nImpersonate-Group: " + admin,
		"impersonation of nobody":     "Impersonate-User: admin",
		"impersonation, escaped":      bearer + "\nImpersonate-Extra-%41: x",
		"two tokens":                  bearer + "\nAuthorization: Bearer " + c.token(t, "admin"),
		"two tokens in one line":      bearer + ", Bearer " + c.token(t, "admin"),
		"a bad token first":           "Authorization: Bearer x\n" + bearer,
		"an empty token first":        "Authorization:\n" + bearer,
		"two schemes":                 "Authorization: Basic eDp5\n" + bearer,
		"no scheme":                   "Authorization: " + c.token(t, "user"),
		"Proxy-Authorization":         "Proxy-Authorization: Bearer " + c.token(t, "user"),
		"a cookie":                    "Cookie: Authorization=Bearer " + c.token(t, "user"),
		"a token in the query only":   "X-Nothing: here",
		"X-Forwarded-User":            bearer + "\nX-Forwarded-User: admin\nX-Forwarded-For: 127.0.0.1",
		"X-Original-URL":              bearer + "\nX-Original-URL: /api/v1/secrets\nX-HTTP-Method-Override: GET",
	} {
		wire := strings.ReplaceAll("POST /apis/authentication.k8s.io/v1/selfsubjectreviews?token="+c.token(t, "admin")+
			" HTTP/1.1\nHost: localhost\n"+
			"Content-Type: application/json\nContent-Length: 2\nConnection: close\nAudit-ID: x\n"+
			lines+"\n\n", "\n", "\r\n") + "{}"
		theirs, err := whoAmI(strings.TrimPrefix(c.Ready.Server, "https://"), wire)
		if err != nil {
			t.Errorf("%s to kube-apiserver: %v", name, err)
			continue
		}
		ours, err := whoAmI(p.ports.Secure, wire)
		if err != nil || ours != theirs {
			t.Errorf("%s: we answer %s, %v, kube-apiserver %s", name, ours, err, theirs)
		}
		if strings.HasPrefix(ours, "201") && (strings.Contains(ours, admin) ||
			strings.Contains(ours, `"username":"admin"`)) {
			t.Errorf("%s made somebody admin: %s", name, ours)
		}
	}
	checkLog(t, p, c.token(t, "user"), c.token(t, "admin"))
}

// whoAmI sends a SelfSubjectReview and returns the code and the body.
func whoAmI(address, wire string) (string, error) {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(steady.Patience))
	if _, err := io.WriteString(c, wire); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, creationTime.ReplaceAll(body, nil)), err
}

var creationTime = regexp.MustCompile(`"creationTimestamp":"[^"]*"`)

// TestStrangersHarmNobody: kube-apiserver ends its HTTP/2 connection to watchfan at each request
// with a bad token or none. No request of others fails because of that, not even one that is too
// long to be sent again, or the first one of its client.
func TestStrangersHarmNobody(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	user := p.secure(t, c.token(t, "user"))
	newcomers := make(chan string, 40)
	admin := c.direct(t)
	newcomers <- serviceAccountToken(t, admin, "default", "newcomer")
	for len(newcomers) < cap(newcomers) {
		newcomers <- requestToken(t, admin, "/api/v1/namespaces/default/serviceaccounts/newcomer")
	}
	done := make(chan struct{})
	var strangers, users sync.WaitGroup
	var refused atomic.Int64
	for _, token := range []string{"bad", "worse", ""} {
		stranger := p.secure(t, token)
		strangers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if resp, err := stranger.try(http.MethodGet, "/api/v1/nodes", nil, ""); err == nil &&
					(resp.status == 401 || resp.status == 403) {
					refused.Add(1)
				}
			}
		})
	}
	var failed, all atomic.Int64
	write := func(c *target, size int) {
		body := `{"metadata":{"annotations":{"x":"` + strings.Repeat("x", size) + `"}}}`
		resp, err := c.try(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", nil, body)
		all.Add(1)
		if err != nil || resp.status != http.StatusCreated {
			if failed.Add(1) <= 3 {
				t.Errorf("a request of %d bytes of a good client: %d %.300s, %v", size, resp.status, resp.body, err)
			}
		}
	}
	for range 4 {
		users.Go(func() {
			for i := range 100 {
				write(user, i*100)
			}
		})
		users.Go(func() {
			for range 100 {
				write(user, 1<<20)
			}
		})
		users.Go(func() {
			for range 10 {
				write(p.secure(t, <-newcomers), 1<<20)
			}
		})
	}
	users.Wait()
	t.Logf("%d of %d requests of good clients failed, beside %d refused ones of strangers", failed.Load(),
		all.Load(), refused.Load())
	close(done)
	strangers.Wait()
	if n := refused.Load(); n < 10 {
		t.Errorf("only %d requests of strangers were refused meanwhile", n)
	}
}

// TestWebPages: the insecure port has watchfan's own rights. No web page may use them through a
// browser on this host, whether the page comes from elsewhere or from another port of this host,
// with an Origin or without. A page of the port itself may, also over WebSocket.
func TestWebPages(t *testing.T) {
	needsPlain(t)
	parallel(t)
	p := sharedWatchfan(t)
	p.waitReady(t)
	plain := p.plain(t)
	own := "http://" + p.ports.Insecure
	const cached, passed = cachedList, "/api/v1/namespaces/default/secrets"
	const watch = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1" //testlint:allow timeout a WebSocket is read to its end
	for name, page := range map[string]struct {
		header  http.Header
		allowed bool
	}{
		"a program":          {http.Header{}, true},
		"a page of the port": {http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {own}}, true},
		"a page elsewhere": {http.Header{"Sec-Fetch-Site": {"cross-site"},
			"Origin": {"https://pages.example"}}, false},
		"another port": {http.Header{"Origin": {"http://localhost:3000"}}, false},
	} {
		for _, r := range [][2]string{{http.MethodGet, cached}, {http.MethodGet, passed},
			{http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews"}} {
			resp, err := plain.try(r[0], r[1], page.header, "")
			if err != nil {
				t.Fatal(err)
			}
			if (resp.status != http.StatusForbidden) != page.allowed {
				t.Errorf("%s %s for %s: %d %.200s", r[0], r[1], name, resp.status, resp.body)
			}
		}
		if page.header.Get("Origin") == "" {
			continue // kube-apiserver wants one for a WebSocket
		}
		status, err := plain.converse(watch, page.header)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{true: http.StatusSwitchingProtocols, false: http.StatusForbidden}[page.allowed]
		if status != want {
			t.Errorf("a WebSocket for %s: %d, want %d", name, status, want)
		}
	}
}
