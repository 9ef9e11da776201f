package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// reads returns all kinds of reads of a collection, as paths with queries.
func reads(collection string) (all []string) {
	within := strings.Replace(collection, "/v1/", "/v1/namespaces/ns/", 1)
	legacy := strings.Replace(collection, "/v1/", "/v1/watch/", 1)
	const token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAxLCJzdGFydCI6ImEifQ" // of resourceVersion 101, behind "a"
	for _, object := range []string{within + "/a", within + "/nosuch"} {
		for _, query := range []string{"", "?resourceVersion=0", "?resourceVersion=101",
			"?pretty=true", "?timeout=5s"} {
			all = append(all, object+query)
		}
	}
	for _, c := range []string{collection, within} {
		for _, query := range []string{
			"", "resourceVersion=0", "resourceVersion=101", "resourceVersion=101&resourceVersionMatch=Exact",
			"resourceVersion=101&resourceVersionMatch=NotOlderThan",
			"limit=1", "limit=1&resourceVersion=0", "limit=1&continue=" + token, "labelSelector=app%3Da",
			"labelSelector=app+in+(a,b),c", "fieldSelector=metadata.name%3Da",
			"fieldSelector=spec.x%3Da", "labelSelector=" + longSelector(), "pretty=1", "timeout=5s", "shardSelector=x",
			"shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
			"watch=1", "watch=1&resourceVersion=0", "watch=1&resourceVersion=101", "watch=1&resourceVersion=1",
			"watch=1&allowWatchBookmarks=true&timeoutSeconds=3",
			"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
			"watch=1&labelSelector=app%3Da", "watch=1&fieldSelector=metadata.name%3Da",
		} {
			all = append(all, c+"?"+query)
		}
	}
	return append(all, legacy, legacy+"?resourceVersion=0")
}

// For a client that may not read, the proxy asks kube-apiserver for a review and passes on
// kube-apiserver's answer. Nothing else happens: no lane is started or looked at, no cache is read,
// and the proxy's own credential is used for reviews only. All caches are locked meanwhile, so a
// request that looked at one would hang. A token that is not accepted costs kube-apiserver no more
// than one request for each request, as without the proxy.
func TestNothingBeforeYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caFile, jane := clientCertificates(t)
		certified := &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{jane.Leaf}}
		anonymous := &tls.ConnectionState{HandshakeComplete: true}
		up := proxytest.NewBubbleServer(t)
		p := bubble.Start(t, up, func(o *proxy.Options) { o.Auth.ClientCAFile = caFile })
		p.CMs.Put("ns", "a", "1", "app", "a")
		p.Watch(bubble.AnyState).Await(2)
		p.AwaitLog("msg=Listed")
		synctest.Wait() // for what the proxy asks in its own name when it starts

		up.On(proxytest.Review, math.MaxInt, func(c *proxytest.Call) {
			if strings.Contains(c.R.Header.Get("Authorization"), "garbage") {
				c.Fail(http.StatusUnauthorized, "Unauthorized", "Unauthorized", 0)
				return
			}
			up.SetAllow(func(string, string) bool { return false })
			c.Serve()
		})
		up.On(proxytest.Client, math.MaxInt, func(c *proxytest.Call) {
			if strings.Contains(c.R.Header.Get("Authorization"), "garbage") {
				c.Fail(http.StatusUnauthorized, "Unauthorized", "Unauthorized", 0)
				return
			}
			c.Fail(http.StatusForbidden, "Forbidden", "kube-apiserver says no", 0)
		})
		release := p.Server.HoldCaches()
		defer release()
		before := len(up.All())
		sent := 0
		for _, s := range []struct {
			name, token, impersonates string
			state                     *tls.ConnectionState
		}{
			{name: "a garbage token", token: "garbage"},
			{name: "a token without rights", token: "valid"},
			{name: "a certificate without rights", state: certified},
			{name: "nobody", state: anonymous},
			{name: "a token that impersonates", token: "valid", impersonates: "admin"},
			{name: "a certificate that impersonates", state: certified, impersonates: "admin"},
		} {
			for _, collection := range []string{bubble.CMs, proxytest.Foos.Path(), "/apis/nosuch.example/v1/things", "/api/v1/nosuch"} {
				for i, target := range reads(collection) {
					var header []string
					if i%3 == 1 {
						header = []string{"Accept", "application/vnd.kubernetes.protobuf,application/json"}
					} else if i%3 == 2 {
						header = []string{"Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
					} else if i%6 == 3 {
						header = []string{"Accept", proxytest.TableAccept}
					}
					if s.impersonates != "" {
						header = append(header, "Impersonate-User", s.impersonates)
					}
					sent++
					asked := len(up.All())
					resp, body := p.Send(bubble.Request{Target: target, Header: header, Token: s.token, TLS: s.state}).Read()
					if s.token == "garbage" {
						most := 1
						if len(target) > 50<<10 {
							most = 2 // two reviews are less work than one such selector
						}
						if n := len(up.All()) - asked; resp.StatusCode != http.StatusUnauthorized || n > most {
							t.Fatalf("%s: %.100s: %d after %d requests, %s", s.name, target, resp.StatusCode, n, body)
						}
						continue
					}
					if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "kube-apiserver says no") && s.impersonates == "" {
						t.Fatalf("%s: %.100s: %d %s", s.name, target, resp.StatusCode, body)
					}
				}
			}
		}
		kinds := make(map[proxytest.Kind]int)
		for _, r := range up.All()[before:] {
			if kinds[r.Kind]++; r.Token == bubble.OwnToken && r.Kind != proxytest.Review && r.Kind != proxytest.Client && r.Path != "/readyz" {
				t.Errorf("asked in the proxy's name: %s %s?%s", r.Method, r.Path, r.Query.Encode())
			}
		}
		if kinds[proxytest.Client] > sent || kinds[proxytest.Review] > sent || kinds[proxytest.Review] == 0 {
			t.Errorf("%d requests have become %v", sent, kinds)
		}
		if n := len(p.Log.With("Started lane")); n != 1 {
			t.Errorf("%d lanes were started, want 1", n)
		}
	})
}

// longSelector is a label selector that is slow to evaluate: each object matches all of its terms
// except the last.
func longSelector() string {
	var b strings.Builder
	for i := 0; b.Len() < 58<<10; i++ {
		fmt.Fprintf(&b, "app!%%3Dx%d,", i)
	}
	return b.String() + "app%3Db"
}

// Strangers that hold all that they may, at the address of a known client, do not keep that client from
// writing.
func TestStrangersAtOneAddress(t *testing.T) {
	up := proxytest.NewServer(t)
	f := startFan(t, up, both, proxy.MemoryUsed(func() int64 { return 1 }), func(o *proxy.Options) {
		o.AdminPort, o.Admission.MemoryLimit = proxy.AnyPort, 64<<20
	})
	up.On(proxytest.Client, 1<<30, func(c *proxytest.Call) {
		if strings.Contains(c.R.Header.Get("Authorization"), "garbage") {
			c.Hang()
		}
		_, _ = io.Copy(io.Discard, c.R.Body)
		c.Write("{}")
	})
	f.get(proxytest.HTTPClient(unsafe()), "/things") // now the token is known
	strangers := proxytest.HTTP2Client(unsafe())
	defer strangers.CloseIdleConnections()
	for range 200 {
		go func() { _, _ = f.ask(strangers, "GET", "/things", "garbage", "") }()
	}
	f.until("strangers with all that they may hold", func() bool {
		d := f.accounts()
		return d.Refused["answers"] > 0 && d.Strangers > d.Limits.Strangers*9/10
	})
	for name, client := range map[string]func(*http.Transport) *http.Client{"HTTP/1.1": proxytest.HTTPClient, "HTTP/2": proxytest.HTTP2Client} {
		for range 20 {
			c := client(unsafe())
			resp, err := f.ask(c, "POST", "/things", bubble.ClientToken, strings.Repeat(" ", 60_000))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %+v, %v", name, resp, err)
			}
			c.CloseIdleConnections()
		}
	}
}
