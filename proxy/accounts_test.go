package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// One user watches a resource in two representations. When memory is short the copy is given up, and
// its watch passes through; the other one goes on, although the same user alone keeps its lane.
func TestCopyGivenUp(t *testing.T) {
	t.Parallel()
	f, percent := memoryOf(t, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
	f.cms.Put("ns", "large", strings.Repeat("x", 2<<20))
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	whole := f.watch(bubble.AnyState)
	whole.Await(2)
	part := proxytest.Open(t, f.insecure+bubble.AnyState, "Accept", metadata)
	part.Await(2)
	f.until("count of both lanes", func() bool {
		d := f.accounts()
		return d.Held["lanes"] > 2<<20 && d.Held["copies"] > 2<<20 && len(d.Largest) == 1 && d.Largest[0].Things == 2
	})
	if _, text := f.askAdmin("/debug/lanes", ""); !strings.Contains(text, " lane ") || !strings.Contains(text, " copy ") {
		t.Errorf("/debug/lanes does not say what counts for one source:\n%s", text)
	}
	percent.Store(82)
	f.awaitLog("Gave lane up", "encoding=json-metadata-v1")
	f.awaitLog("Cut what was held for a client", "memoryShort=true")
	part.WantEnd()
	f.passed(0)
	percent.Store(50)
	f.awaitLog("memory=enough")
	proxytest.Open(t, f.insecure+bubble.AnyState, "Accept", metadata).Await(2)
	f.passed(1)
	if passed := f.watchers("").Passed; passed.Reasons["lane_bound"] != 1 {
		t.Errorf("the watch passes through because %v", passed.Reasons)
	}
	f.cms.Put("ns", "a", "1")
	whole.Await(3)
	_, metrics := f.askAdmin("/metrics", "")
	for _, want := range []string{`watchfan_account_cut_bytes_total{kind="copies"} 2`, `watchfan_account_held_bytes{kind="lanes"} 2`,
		"watchfan_account_sources 1\n", "watchfan_account_strangers_bytes 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

// What lists from a cache keep that are not read counts for their user, once for what they share, and
// is bounded.
func TestUnreadLists(t *testing.T) {
	t.Parallel()
	f := startWatched(t, proxy.MemoryUsed(func() int64 { return 1 }), func(o *proxy.Options) { o.Admission.MemoryLimit = 64 << 20 })
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	f.cms.Put("ns", "large", hex.EncodeToString(noise))
	f.watch(bubble.AnyState).Await(1)
	var bodies []io.Closer
	list := func(client *http.Client, header ...string) *http.Response {
		t.Helper()
		resp, err := f.ask(client, http.MethodGet, bubble.CMs+"?resourceVersion=0", bubble.ClientToken, "", header...)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
		return resp
	}
	held := func() int64 { return f.accounts().Held["answers"] }
	closed := func() {
		t.Helper()
		for _, b := range bodies {
			b.Close()
		}
		bodies = nil
		f.until("end of all answers", func() bool { return held() == 0 })
	}

	closed() // the watch may have passed through at first
	client := http2Client(t)
	const each, most = downstream.SealedAtOnce, 64 << 20 / 8
	const waits = 17 << 10 // for a response that has waited for long
	for n := 1; ; n++ {
		if code := list(client).StatusCode; code == http.StatusTooManyRequests {
			break
		} else if code != http.StatusOK || n*each > most {
			t.Fatalf("answer %d is %d", n, code)
		}
		if h := held(); h < int64(n*each) || h > int64(n*(each+waits)) {
			t.Fatalf("%d bytes are held for %d lists", h, n)
		}
	}
	closed()

	for range 3 {
		if got := list(client, "Accept-Encoding", "gzip").Header.Get("Content-Encoding"); got != "gzip" {
			t.Fatalf("not compressed: %q", got)
		}
	}
	if h := held(); h < 3*each+int64(len(noise)) || h > 3*each+2*int64(len(noise)) {
		t.Errorf("%d bytes are held for three lists that share their bytes", h)
	}
	closed()

	overHTTP1 := proxytest.HTTPClient(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(4096)
			}
			return conn, err
		}})
	list(overHTTP1)
	if h := held(); h < 2*each || h > 2*each+1000 {
		t.Errorf("%d bytes are held for a list over HTTP/1.1", h)
	}
	closed()
}

// A connection counts for its client once kube-apiserver has accepted the client, and not only from its
// next request on.
func TestConnectionBecomesKnown(t *testing.T) {
	t.Parallel()
	f := startWatched(t)
	client := proxytest.HTTP2Client(unsafe())
	t.Cleanup(client.CloseIdleConnections)
	bodyOf(t, f.get(client, bubble.CMs))
	f.until("connection of a known client, without a request", func() bool {
		return slices.ContainsFunc(f.accounts().Largest, func(h diagnose.DebugHolder) bool { return h.Held["connections"] > 0 && !h.Stranger })
	})
}
