package cached_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

const (
	tablePage   = bubble.CMs + "?limit=500"
	mayNotList  = "may-not-list"
	listingHerd = 20
)

// tableHerd sends the list of a kubectl from each of many clients at the same instant, and from one
// more that may not list. It calls came once each has come, and returns the answers by token. Each
// round has clients of its own.
func tableHerd(p *bubble.Proxy, round int, came func()) map[string]string {
	p.T.Helper()
	p.Up.SetAllow(func(token, _ string) bool { return !strings.HasPrefix(token, mayNotList) })
	clients := make(map[string]*bubble.Client)
	for i := range listingHerd + 1 {
		token := fmt.Sprint("token-", i, ".", round)
		if i == listingHerd {
			token = fmt.Sprint(mayNotList, ".", round)
		}
		clients[token] = p.Begin(bubble.Request{Target: tablePage, Token: token, HTTP2: i%2 == 0, Header: []string{"Accept", proxytest.TableAccept}})
	}
	synctest.Wait()
	came()
	answers := make(map[string]string)
	for token, c := range clients {
		resp, body := c.Read()
		answers[token] = fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
		warnings := []string{tokenWarning("Bearer " + token), "299 - \"resource\""}
		if got := resp.Header["Warning"]; resp.StatusCode == http.StatusOK && !slices.Equal(got, warnings) {
			p.T.Errorf("%s: Warning %q, want %q", token, got, warnings)
		}
	}
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
		c.Write(table)
	}
}

// startHerd starts a proxy whose kube-apiserver warns each client, and the proxy, about its own
// credential.
func startHerd(t *testing.T) *bubble.Proxy {
	up := proxytest.NewBubbleServer(t)
	for _, kind := range []proxytest.Kind{proxytest.Review, proxytest.Other} {
		up.On(kind, 1<<30, func(c *proxytest.Call) {
			warn(c)
			c.Serve()
		})
	}
	return bubble.Start(t, up)
}

// Kubectls that list at the same instant share kube-apiserver's answer, but no Warning about a
// credential. kube-apiserver itself tells a client that it may not list.
func TestTableListsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startHerd(t)
		table := `{"kind":"Table","rows":"` + strings.Repeat("x", 300<<10) + `"}`
		const rounds = 6 // with more lists than may be kept
		var asked chan struct{}
		p.Up.On(proxytest.List, 1<<30, func(c *proxytest.Call) {
			<-asked
			if got := c.R.Header.Get("Accept"); got != proxytest.TableAccept || c.R.URL.RequestURI() != tablePage {
				t.Errorf("asked for %s as %s", c.R.URL, got)
			}
			answerTables(table)(c)
		})
		p.Up.On(proxytest.Client, 1<<30, answerTables(table))
		for round := range rounds {
			asked = make(chan struct{})
			answers := tableHerd(p, round, func() { close(asked) })
			for token, got := range answers {
				if strings.HasPrefix(token, mayNotList) {
					if !strings.HasPrefix(got, "403 ") {
						t.Errorf("%s got %.100s", token, got)
					}
				} else if want := "200 application/json " + table; got != want {
					t.Errorf("%s got %.100s of %d bytes, want %.100s of %d", token, got, len(got), want, len(want))
				}
			}
		}
		// The list of the first client passes through, and those of the client that may not list. Clients
		// that come while a list is under way share the next one.
		passed, lists := p.Up.Count(proxytest.Client), p.Up.Count(proxytest.List)
		if passed < rounds || passed > rounds+1 || lists < rounds || lists > 2*rounds {
			t.Errorf("%d lists passed through and %d were shared, in %d rounds", passed, lists, rounds)
		}
		for _, r := range p.Up.Requests(proxytest.List) {
			if r.Token != bubble.OwnToken {
				t.Errorf("a shared list is asked for with %s", r.Token)
			}
		}
		_, metrics := p.Admin("/metrics")
		want := rounds*(listingHerd+1) - passed
		if n := proxytest.SumMetric(metrics, "watchfan_shared_lists_total"); int(n) != want {
			t.Errorf("%v lists were answered with a shared one, want %d", n, want)
		}
	})
}

// An answer that can't be shared is given to nobody: each client asks for itself.
func TestTableListsNotShared(t *testing.T) {
	for name, answer := range map[string]func(*proxytest.Call){
		"refused":    func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "not even the proxy", 0) },
		"broken off": (*proxytest.Call).Abort,
		"too long":   answerTables(strings.Repeat("x", 8<<20+1)),
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p := startHerd(t)
			p.Up.On(proxytest.List, 1<<30, answer)
			p.Up.On(proxytest.Client, 1<<30, answerTables("own"))
			for token, got := range tableHerd(p, 0, func() {}) {
				if !strings.HasPrefix(token, mayNotList) && got != "200 application/json own" {
					t.Errorf("%s got %.100s", token, got)
				}
			}
			if p.Up.Count(proxytest.List) == 0 {
				t.Error("no list was to be shared")
			}
			p.Passed(listingHerd + 1)
		})
	}
}

// Another server takes the version over while clients wait for a list that they share. It may show each client other
// objects than the proxy, so each client asks for itself.
func TestTableListsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		services := up.Add(proxytest.Resource{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices", Kind: "APIService"})
		services.PutMembers("v1.ex.io", 1, `"spec":{"group":"ex.io","version":"v1"}`)
		p := bubble.Start(t, up)
		asked := make(chan struct{})
		up.On(proxytest.List, 1, func(c *proxytest.Call) {
			<-asked
			c.Write("the proxy's")
		})
		up.On(proxytest.Client, 1<<30, func(c *proxytest.Call) { c.Write("own") })
		var clients []*bubble.Client
		for range 3 {
			clients = append(clients, p.Begin(bubble.Request{Target: "/apis/ex.io/v1/foos?limit=500", Header: []string{"Accept", proxytest.TableAccept}}))
		}
		up.AwaitCount(proxytest.List, 1)
		services.PutMembers("v1.ex.io", 2, `"spec":{"group":"ex.io","version":"v1","service":{"name":"other"}}`)
		p.AwaitLog("an aggregated API server answers for it")
		close(asked)
		for _, c := range clients {
			if resp, body := c.Read(); resp.StatusCode != http.StatusOK || body != "own" {
				t.Errorf("%s %s", resp.Status, body)
			}
		}
	})
}
