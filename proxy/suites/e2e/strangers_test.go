package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestWritesBesideStrangers: kube-apiserver ends its HTTP/2 connection to watchfan at each request with a bad token or
// none. Meanwhile clients write objects, short and too long to be sent again, over both protocols, with tokens that
// kube-apiserver has accepted before and with new ones. Each write happens once.
func TestWritesBesideStrangers(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	admin := c.direct(t)
	createNamespaces(t, admin, "new-tokens")
	serviceAccountToken(t, admin, "new-tokens", "writer")
	admin.allow(t, "new-tokens", "writer", "ServiceAccount writer", "create /configmaps")
	const path = "/api/v1/namespaces/new-tokens/configmaps"
	writer := person{name: "system:serviceaccount:new-tokens:writer"}
	steady.Until(t, "right to create", func() error {
		return reviewed(admin, writer, demand{verb: "create", resource: "configmaps", namespace: "new-tokens"}, true)
	})
	done := make(chan struct{})
	var strangers, writers sync.WaitGroup
	var refused atomic.Int64
	for _, token := range []string{"bad", "worse", ""} {
		stranger := p.secure(t, token)
		strangers.Go(func() {
			for pace(done, 0) {
				resp, err := stranger.try(http.MethodPost, path, nil, strings.Repeat("x", 100_000))
				if err == nil && (resp.status == http.StatusUnauthorized || resp.status == http.StatusForbidden) {
					refused.Add(1)
				}
			}
		})
	}
	sizes := []int{10, 20_000, 70_000, 600_000}
	want := make(map[string]int)
	for i := range 28 {
		token, each, uri := c.token(t, "admin"), 50, path+"?dryRun=All"
		if i < 24 { // all of these begin as a stranger's
			token, each, uri = requestToken(t, admin, "/api/v1/namespaces/new-tokens/serviceaccounts/writer"), 6, path
		}
		client := p.secure(t, token)
		if i%2 == 0 {
			client = client.http2()
		}
		gate := make(chan struct{}, 6)
		for n := range each {
			if uri == path {
				want[fmt.Sprintf("w%d-%d", i, n)] = 1
			}
			writers.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				body := fmt.Sprintf(`{"metadata":{"generateName":"w%d-%d-"},"data":{"x":%q}}`, i, n,
					strings.Repeat("x", sizes[(i+n)%len(sizes)]))
				if resp, err := client.try(http.MethodPost, uri, nil, body); err != nil || resp.status != http.StatusCreated {
					t.Errorf("write %d of client %d: %d %.300s, %v", n, i, resp.status, resp.body, err)
				}
			})
		}
	}
	writers.Wait()
	close(done)
	strangers.Wait()
	if n := refused.Load(); n < 10 {
		t.Errorf("only %d requests of strangers were refused meanwhile", n)
	}
	got := make(map[string]int)
	names := regexp.MustCompile(`"name":"(w\d+-\d+)-`)
	for _, found := range names.FindAllSubmatch(admin.do(t, http.MethodGet, path, accept(partials), "").body, -1) {
		got[string(found[1])]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects: %s", diff)
	}
}

// TestAnswersToStrangers: what a stranger is told, it is told by kube-apiserver, and so is whether its
// HTTP/2 connection goes on.
func TestAnswersToStrangers(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	for _, token := range []string{"bad", ""} {
		straight, through := c.as(t, ""), p.secure(t, token)
		straight.token = token
		for _, ways := range [][2]*target{{straight, through}, {straight.http2(), through.http2()}} {
			for _, body := range []string{"", "{}", strings.Repeat("x", 300_000)} {
				for _, path := range []string{"/api/v1/nodes", "/api/v1/namespaces/default/configmaps", "/version", "/nosuch"} {
					r := row{method: http.MethodPost, uri: path, body: body}
					if body == "" {
						r.method = http.MethodGet
					}
					if err := r.compare(t, ways[0], ways[1]); err != nil {
						t.Errorf("%s %s, %d bytes: %v", r.method, path, len(body), err)
					}
				}
			}
		}
	}
	for _, token := range []string{"bad", "", c.token(t, "user")} {
		fields := proxytest.RequestFields("GET", "/version")
		if token != "" {
			fields = append(fields, "authorization", "Bearer "+token)
		}
		want, got := sentAway(t, c.Address(), fields), sentAway(t, p.Ports.Secure, fields)
		if want != got {
			t.Errorf("token %.3q: sent away: %v, want %v", token, got, want)
		}
	}
}

// sentAway sends a request, and reports whether GOAWAY comes with the answer.
func sentAway(t *testing.T, address string, fields []string) (away bool) {
	t.Helper()
	w, err := proxytest.DialHTTP2(t.Context(), address, steady.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = w.Ask(1, true, fields...)
	_ = w.Flush()
	for {
		f, err := w.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *wire.GoAwayFrame:
			away = true
		case *wire.PingFrame:
			return away // the answer to the one behind the response
		case *wire.DataFrame:
			if f.StreamEnded() {
				_ = w.WritePing(false, [8]byte{1})
				_ = w.Flush()
			}
		}
	}
}
