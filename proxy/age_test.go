package proxy_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// At its maximum age a connection closes. A watch on it ends gracefully, behind a bookmark. On a
// connection without a watch, the next answer says Connection: close.
func TestMaxConnectionAge(t *testing.T) {
	t.Parallel()
	const age = time.Second
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.Downstream.MaxConnectionAge, o.AdminPort = age, proxy.AnyPort
	})
	f.cms.Put("ns", "a", "1")
	dial := func() *rawConn {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.insecure, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		return newRawConn(t, c)
	}
	began := time.Now()
	watch, ordinary := dial(), dial()
	watch.send("GET %s HTTP/1.1\nHost: localhost\n\n", cmsPath+"?watch=1&allowWatchBookmarks=true&resourceVersion=0")
	for {
		ordinary.send("GET /version HTTP/1.1\nHost: localhost\n\n")
		resp, _ := ordinary.response()
		took := time.Since(began)
		if resp.Close {
			if took < age*9/10 {
				t.Errorf("the connection was too old after %s", took)
			}
			break
		}
		if took > proxytest.Patience {
			t.Fatal("the connection is used on and on")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n, err := ordinary.r.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes behind the last answer", n)
	}
	resp := watch.head("GET")
	body := bodyOf(t, resp) // bodyOf checks that the body ends properly
	took := time.Since(began)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	last := lines[len(lines)-1]
	if len(lines) != 3 || !strings.Contains(last, `"BOOKMARK"`) || strings.Contains(last, "initial-events-end") {
		t.Errorf("the watch brought %s", body)
	}
	if resp.StatusCode != http.StatusOK || took < age*9/10 {
		t.Errorf("%s, ended after %s", resp.Status, took)
	}
	if n, err := watch.r.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes behind the watch", n)
	}
	f.until("the count of it", func() bool {
		_, _, page := f.askAdmin("/metrics", "")
		return proxytest.SumMetric(page, "watchfan_watches_ended_total", `reason="connection_age"`) == 1
	})
}
