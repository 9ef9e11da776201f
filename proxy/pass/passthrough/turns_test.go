package passthrough_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// longTarget is a list with selectors of 20 KiB.
var longTarget = bubble.CMs + "?labelSelector=" + strings.Repeat("!k,", 20<<10/3) + "!k"

// owner answers SelfSubjectReviews: "garbage" is nobody's token, and any other is somebody's.
func owner(c *proxytest.Call) {
	if strings.HasSuffix(c.R.Header.Get("Authorization"), "garbage") {
		c.Fail(http.StatusUnauthorized, "Unauthorized", "Unauthorized", 0)
		return
	}
	c.W.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(c.W, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"somebody"}}}`)
}

// kube-apiserver compares each event with each requirement of the watches that pass through. So one
// user has a few watches with large selectors, for as long as they last.
func TestLargeSelectors(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			flush(w)
			<-r.Context().Done()
		})
		var open []*bubble.Client
		ask := func() int {
			c := p.Send(bubble.Request{Target: longTarget + "&watch=1", Body: []string{"", "{}"}[len(open)%2]})
			if c.Response().StatusCode == http.StatusOK {
				open = append(open, c)
			}
			return c.Response().StatusCode
		}
		for range 4 {
			if code := ask(); code != http.StatusOK {
				t.Fatalf("with %d watches got %d", len(open), code)
			}
		}
		if code := ask(); code != http.StatusTooManyRequests {
			t.Errorf("got %d", code)
		}
		open[0].Leave()
		synctest.Wait()
		if code := ask(); code != http.StatusOK {
			t.Errorf("behind a watch that has ended got %d", code)
		}
	})
}

// kube-apiserver parses long selectors before it authenticates. So the proxy first asks whether an
// unknown token is accepted, and sends one long request of a client at a time.
func TestLongRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.On(proxytest.Owner, 2, owner)
		if resp, _ := p.Send(bubble.Request{Target: longTarget, Token: "garbage"}).Read(); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a garbage token got %d", resp.StatusCode)
		}
		p.Passed(0)
		answer := make(chan struct{})
		p.Up.OnClients(func(http.ResponseWriter, *http.Request) { <-answer })
		for range 8 {
			p.Begin(bubble.Request{Target: longTarget, Token: bubble.ClientToken})
		}
		for n := range 8 {
			synctest.Wait()
			p.Passed(n + 1)
			answer <- struct{}{}
		}
		p.Up.WantCount(proxytest.Owner, 2)
	})
}

// A request that is refused while it waits to pass through has the same Audit-Id in its response and in
// the audit log.
func TestRefusedAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, file := proxytest.NewBubbleServer(t), filepath.Join(t.TempDir(), "audit.log")
		p := bubble.Start(t, up, func(o *proxy.Options) {
			o.Audit.AuditLogPath, o.Audit.AuditLogMode, o.Audit.AuditLogMaxSize = file, "blocking", 0
		})
		up.On(proxytest.Owner, 1, owner)
		resp, _ := p.Send(bubble.Request{Target: longTarget, Token: "garbage"}).Read()
		log, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var event struct{ AuditID string }
		if err := json.Unmarshal(log, &event); err != nil || event.AuditID == "" || event.AuditID != resp.Header.Get("Audit-Id") {
			t.Errorf("%v: the log has %s, the response %v", err, log, resp.Header)
		}
	})
}
