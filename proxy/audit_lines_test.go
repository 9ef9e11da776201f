package proxy_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// auditLine is a line of the audit log.
type auditLine struct {
	AuditID, Stage string
	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// auditedProxy is a proxy whose audit log is read line by line.
type auditedProxy struct {
	*bubble.Proxy
	log *os.File
	n   int // requests

	mu      sync.Mutex
	passed  map[string]int  // requests at kube-apiserver, by auditID
	via     string          // how the proxy names itself to kube-apiserver
	reviews map[string]bool // auditIDs of reviews
}

func startAudited(t *testing.T, caFile string, options ...func(*proxy.Options)) *auditedProxy {
	up := proxytest.NewBubbleServer(t)
	a := &auditedProxy{passed: make(map[string]int), reviews: make(map[string]bool)}
	path := filepath.Join(t.TempDir(), "audit.log")
	a.Proxy = bubble.Start(t, up, append(options, func(o *proxy.Options) {
		o.Auth.ClientCAFile = caFile
		o.Audit.AuditLogPath, o.Audit.AuditLogMode, o.Audit.AuditLogMaxSize = path, audit.AuditBlocking, 0
		o.Admission.MaxWatchesPerUser = 3
	})...)
	var err error
	if a.log, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.log.Close() })
	up.On(proxytest.Client, math.MaxInt, func(c *proxytest.Call) {
		id := c.R.Header.Get("Audit-Id")
		a.mu.Lock()
		a.passed[id]++
		a.via = c.R.Header.Get("Via")
		a.mu.Unlock()
		c.W.Header().Set("Audit-Id", id)
		c.Serve()
	})
	up.On(proxytest.Review, math.MaxInt, a.review)
	up.On(proxytest.Owner, math.MaxInt, func(c *proxytest.Call) { c.Fail(http.StatusNotFound, "NotFound", "no owners here", 0) })
	return a
}

// review answers by token, and has an auditID.
func (a *auditedProxy) review(c *proxytest.Call) {
	a.mu.Lock()
	id := fmt.Sprint("review-", len(a.reviews))
	a.reviews[id] = true
	a.mu.Unlock()
	c.W.Header().Set("Audit-Id", id)
	switch token := strings.TrimPrefix(c.R.Header.Get("Authorization"), "Bearer "); token {
	case "garbage":
		c.Fail(http.StatusUnauthorized, "Unauthorized", "Unauthorized", 0)
	case "conditional":
		c.W.WriteHeader(http.StatusCreated)
		fmt.Fprint(c.W, `{"kind":"SelfSubjectAccessReview","status":{"allowed":true,"conditionSetChain":[{}]}}`)
	default:
		c.Serve()
	}
}

// lines returns the lines since the last call.
func (a *auditedProxy) lines() (all []auditLine) {
	a.T.Helper()
	text, err := io.ReadAll(a.log)
	if err != nil {
		a.T.Fatal(err)
	}
	for text := range bytes.Lines(text) {
		var line auditLine
		if err := json.Unmarshal(text, &line); err != nil {
			a.T.Fatalf("%v: %s", err, text)
		}
		all = append(all, line)
	}
	return all
}

// request sends a request, checks its lines, and says who has answered: "cache", "refusal" or
// "kube-apiserver".
func (a *auditedProxy) request(r bubble.Request) (by string, code int) {
	a.T.Helper()
	a.n++
	id := fmt.Sprint("request-", a.n)
	r.Header = append([]string{"Audit-Id", id}, r.Header...)
	c := a.Send(r)
	code = c.Response().StatusCode
	watches := strings.Contains(r.Target, "watch")
	if watches {
		c.Leave()
	} else {
		c.Read()
	}
	synctest.Wait()
	wrong := func(format string, args ...any) {
		a.T.Helper()
		a.T.Errorf("%s %.100s (%d) %.100q: %s", r.Method, r.Target, code, r.Header, fmt.Sprintf(format, args...))
	}
	if got := c.Response().Header.Get("Audit-Id"); got != id && code != http.StatusSwitchingProtocols {
		wrong("the client sees the auditID %q", got)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	stages, allowed := "", false
	for _, line := range a.lines() {
		if line.AuditID != id {
			wrong("has a line of %s", line.AuditID)
		}
		stages += line.Stage + " "
		allowed = allowed || line.Annotations["authorization.k8s.io/decision"] == "allow"
		if ids := line.Annotations["watchfan.io/review-ids"]; allowed && ids == "" != (r.Token == "" && r.TLS == nil) {
			wrong("review-ids are %q", ids)
		} else if ids != "" {
			for id := range strings.SplitSeq(ids, ",") {
				if !a.reviews[id] {
					wrong("there was no review %q", id)
				}
			}
		}
	}
	want := "ResponseComplete "
	switch named := r.TLS != nil && len(r.TLS.PeerCertificates) > 0; {
	case a.passed[id] > 1:
		wrong("kube-apiserver has seen it %d times", a.passed[id])
	case a.passed[id] == 1 && !named:
		by, want = "kube-apiserver", ""
	case a.passed[id] == 1:
		by = "kube-apiserver"
		stages = strings.TrimPrefix(stages, "ResponseStarted ") // of a lasting answer
	case code == http.StatusUnauthorized:
		by, want = "refusal", "ResponseStarted "
	case allowed && watches:
		by, want = "cache", "ResponseStarted ResponseComplete "
	case allowed:
		by = "cache"
	default:
		by = "refusal"
	}
	if stages != want {
		wrong("answered by %s, its lines are %q, want %q", by, stages, want)
	}
	return by, code
}

// TestOneLine: whatever is answered here has its lines in the audit log, whether a cache answers or a
// check refuses, and nothing else has. What passes through has its auditID upstream, and a line
// if its client is known here by name alone.
func TestOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caFile, jane := clientCertificates(t)
		certified := &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{jane.Leaf}}
		secure := &tls.ConnectionState{HandshakeComplete: true}
		a := startAudited(t, caFile)
		a.CMs.Put("ns", "a", "1", "app", "a")
		w := a.Watch(bubble.AnyState)
		w.Await(2)
		w.Close()
		synctest.Wait()
		a.lines()
		for _, s := range []struct {
			name   string
			by     string // who answers, among others
			never  string // who never does
			as     bubble.Request
			header []string
		}{
			{name: "the proxy's own rights", by: "cache"},
			{name: "a token", by: "cache", as: bubble.Request{Token: "valid"}},
			{name: "a certificate", by: "cache", as: bubble.Request{TLS: certified}},
			{name: "a certificate that acts as another", by: "kube-apiserver", never: "cache", as: bubble.Request{TLS: certified},
				header: []string{"Impersonate-User", "joe", "Impersonate-Group", "devs"}},
			{name: "a yes with conditions", by: "kube-apiserver", never: "cache", as: bubble.Request{Token: "conditional"}},
			{name: "a token that is refused", by: "refusal", never: "cache", as: bubble.Request{Token: "garbage"}},
			{name: "a token that acts as another", by: "kube-apiserver", never: "cache", as: bubble.Request{Token: "valid"},
				header: []string{"Impersonate-User", "joe"}},
			{name: "nobody", by: "kube-apiserver", never: "cache", as: bubble.Request{TLS: secure}},
		} {
			counts := make(map[string]int)
			for i, target := range reads(bubble.CMs) {
				r := s.as
				r.Target, r.Header = target, s.header
				if i%2 == 1 {
					r.Header = append([]string{"Accept", proxytest.TableAccept}, r.Header...)
				}
				by, _ := a.request(r)
				counts[by]++
			}
			if counts[s.by] == 0 || counts[s.never] > 0 {
				t.Errorf("%s: answered by %v", s.name, counts)
			}
		}
		a.refusals(certified)
	})
}

// A request that passes through has the code in its line that its client sees, also where a view is refused.
func TestAuditedView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caFile, jane := clientCertificates(t)
		a := startAudited(t, caFile, func(o *proxy.Options) {
			o.View.Views = []view.Config{{Name: "undone", Resources: []view.Part{{Resource: "configmaps", Where: "data.v notin (done)"}}}}
			o.Cached.Exclude = []string{"configmaps"}
		})
		a.CMs.Put("ns", "a", "1")
		for _, code := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			resp, body := a.Send(bubble.Request{Target: "/views/undone" + bubble.CMs,
				TLS: &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{jane.Leaf}}}).Read()
			synctest.Wait()
			if lines := a.lines(); resp.StatusCode != code || len(lines) != 1 || lines[0].ResponseStatus.Code != code {
				t.Errorf("got %d %.200s, want %d, and the lines %+v", resp.StatusCode, body, code, lines)
			}
			a.CMs.Put("ns", "large", strings.Repeat("x", 1<<20))
		}
	})
}

// refusals has each check refuse a request.
func (a *auditedProxy) refusals(certified *tls.ConnectionState) {
	a.T.Helper()
	a.Up.SetAllow(func(_, review string) bool { return !strings.Contains(review, `"impersonate"`) })
	for want, r := range map[int]bubble.Request{
		http.StatusForbidden: {Target: bubble.CMs, Header: []string{"Origin", "https://evil.example"}},
		http.StatusNotFound:  {Target: "/views/nosuch" + bubble.CMs},
		http.StatusServiceUnavailable: {Target: bubble.CMs + "?watch=1&resourceVersion=0&sendInitialEvents=true", Token: "valid",
			Header: []string{request.SeedHeader, "x"}},
		http.StatusMethodNotAllowed: {Method: http.MethodDelete, Target: "/views/lean" + bubble.CMs, Token: "valid"},
		http.StatusUnauthorized:     {Target: bubble.CMs, TLS: &tls.ConnectionState{HandshakeComplete: true}, Header: []string{request.SeedHeader, "x"}},
		http.StatusLoopDetected:     {Target: "/version", Header: []string{"Via", a.via}},
	} {
		if by, code := a.request(r); by != "refusal" || code != want {
			a.T.Errorf("%s %s %q: %d by %s, want %d", r.Method, r.Target, r.Header, code, by, want)
		}
	}
	if by, code := a.request(bubble.Request{Target: bubble.CMs, TLS: certified, Header: []string{"Impersonate-User", "root"}}); by != "refusal" ||
		code != http.StatusForbidden {
		a.T.Errorf("a certificate that may not impersonate: %d by %s", code, by)
	}
	for range 3 {
		a.Send(bubble.Request{Target: bubble.AnyState, TLS: certified})
	}
	synctest.Wait()
	a.lines()
	if by, code := a.request(bubble.Request{Target: bubble.AnyState, TLS: certified}); by != "refusal" || code != http.StatusTooManyRequests {
		a.T.Errorf("a watch too many: %d by %s", code, by)
	}
}
