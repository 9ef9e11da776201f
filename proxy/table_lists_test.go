package proxy_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

const (
	tablePage   = cmsPath + "?limit=500"
	mayNotList  = "may-not-list"
	listingHerd = 20
)

// tableHerd sends the list of a kubectl from each of n clients at the same instant, over HTTP/1.1
// and HTTP/2, and from one more that may not list. It calls came once each has come, and returns
// the answers by token. Each round has clients of its own.
func (f *fan) tableHerd(round int, came func()) map[string]string {
	f.t.Helper()
	f.up.SetAllow(func(token, _ string) bool { return !strings.HasPrefix(token, mayNotList) })
	var (
		clients sync.WaitGroup
		mu      sync.Mutex
		answers = make(map[string]string)
	)
	for i := range listingHerd + 1 {
		token, client := fmt.Sprint("token-", i, ".", round), proxytest.HTTPClient
		if i == listingHerd {
			token = fmt.Sprint(mayNotList, ".", round)
		}
		if i%2 == 0 {
			client = proxytest.HTTP2Client
		}
		clients.Go(func() {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			req, _ := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.secure+tablePage, nil)
			req.Header = http.Header{
				"Accept":        {proxytest.TableAccept},
				"Authorization": {"Bearer " + token},
				"User-Agent":    {proxytest.ClientAgent},
			}
			resp, err := client(transport).Do(req)
			if err != nil {
				f.t.Error(err)
				return
			}
			body := bodyOf(f.t, resp)
			mu.Lock()
			defer mu.Unlock()
			answers[token] = fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
			warnings := []string{tokenWarning("Bearer " + token), "299 - \"resource\""}
			if got := resp.Header["Warning"]; resp.StatusCode == http.StatusOK && !slices.Equal(got, warnings) {
				f.t.Errorf("%s: Warning %q, want %q", token, got, warnings)
			}
		})
	}
	f.until("review of each, or its own list", func() bool {
		tokens := make(map[string]bool)
		for _, r := range slices.Concat(f.up.Requests(proxytest.Review), f.up.Requests(proxytest.Client)) {
			if strings.HasSuffix(r.Token, fmt.Sprint(".", round)) {
				tokens[r.Token] = true
			}
		}
		return len(tokens) == listingHerd+1
	})
	came()
	clients.Wait()
	return answers
}

// tokenWarning returns the Warning about a credential in the form of an Authorization header.
func tokenWarning(authorization string) string { return fmt.Sprintf("299 - %q", authorization) }

// warn adds the Warning about the request's credential.
func warn(c *proxytest.Call) {
	c.W.Header().Add("Warning", tokenWarning(c.R.Header.Get("Authorization")))
}

// answerTables answers a list as kube-apiserver does, and refuses the client that may not list.
func answerTables(table string) func(*proxytest.Call) {
	return func(c *proxytest.Call) {
		if strings.Contains(c.R.Header.Get("Authorization"), mayNotList) {
			c.Fail(http.StatusForbidden, "Forbidden", "no", 0)
			return
		}
		warn(c)
		c.W.Header().Add("Warning", "299 - \"resource\"")
		c.W.Header().Set("Content-Type", "application/json")
		c.Write(table)
	}
}

// startHerd starts a proxy whose kube-apiserver warns each client, and the proxy, about its own
// credential.
func startHerd(t *testing.T) *fan {
	up := proxytest.NewTLSServer(t)
	for _, kind := range []proxytest.Kind{proxytest.Review, proxytest.Other} {
		up.On(kind, 1<<30, func(c *proxytest.Call) {
			warn(c)
			c.Serve()
		})
	}
	return startFan(t, up, both, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
}

// Kubectls that list at the same instant share kube-apiserver's answer, but no Warning about a
// credential. Who may not list is told so by kube-apiserver.
func TestTableListsShared(t *testing.T) {
	t.Parallel()
	f := startHerd(t)
	table := `{"kind":"Table","rows":"` + strings.Repeat("x", 300<<10) + `"}`
	const rounds = 6 // with more lists than may be kept
	var asked atomic.Pointer[chan struct{}]
	f.up.On(proxytest.List, 1<<30, func(c *proxytest.Call) {
		<-*asked.Load()
		if got := c.R.Header.Get("Accept"); got != proxytest.TableAccept || c.R.URL.RequestURI() != tablePage {
			t.Errorf("asked for %s as %s", c.R.URL, got)
		}
		answerTables(table)(c)
	})
	f.up.On(proxytest.Client, 1<<30, answerTables(table))
	for round := range rounds {
		all := make(chan struct{})
		asked.Store(&all)
		answers := f.tableHerd(round, func() { close(all) })
		for token, got := range answers {
			want := "200 application/json " + table
			if strings.HasPrefix(token, mayNotList) {
				want = got
				if !strings.HasPrefix(got, "403 ") {
					t.Errorf("%s got %.100s", token, got)
				}
			}
			if got != want {
				t.Errorf("%s got %.100s of %d bytes, want %.100s of %d", token, got, len(got), want, len(want))
			}
		}
		if len(answers) != listingHerd+1 {
			t.Errorf("%d clients got an answer", len(answers))
		}
	}
	passed, lists := f.up.Count(proxytest.Client), f.up.Count(proxytest.List)
	if passed < rounds || lists < rounds || passed+lists > rounds*listingHerd/2 {
		t.Errorf("%d lists passed through and %d were shared, for %d rounds of %d clients",
			passed, lists, rounds, listingHerd)
	}
	for _, r := range f.up.Requests(proxytest.List) {
		if r.Token != ownToken {
			t.Errorf("a shared list is asked for with %s", r.Token)
		}
	}
	_, _, metrics := f.debug("/metrics")
	want := rounds*(listingHerd+1) - passed
	if n := proxytest.SumMetric(metrics, "watchfan_shared_lists_total"); int(n) != want {
		t.Errorf("%v lists were answered with a shared one, want %d", n, want)
	}
}

// An answer that can't be shared is given to nobody: each client asks for itself.
func TestTableListsNotShared(t *testing.T) {
	for name, answer := range map[string]func(*proxytest.Call){
		"refused":    func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "not even the proxy", 0) },
		"broken off": (*proxytest.Call).Abort,
		"too long":   answerTables(strings.Repeat("x", 8<<20+1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startHerd(t)
			f.up.On(proxytest.List, 1<<30, answer)
			f.up.On(proxytest.Client, 1<<30, answerTables("own"))
			for token, got := range f.tableHerd(0, func() {}) {
				if !strings.HasPrefix(token, mayNotList) && got != "200 application/json own" {
					t.Errorf("%s got %.100s", token, got)
				}
			}
			if f.up.Count(proxytest.List) == 0 {
				t.Error("no list was to be shared")
			}
			f.passed(listingHerd + 1)
		})
	}
}
