package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// Another watchfan's probe, which asks how far upstream is, passes through. Its other watches, and
// other clients' short watches, do not.
func TestProbesPassThrough(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(1)
	uri := fmt.Sprintf("%s%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=",
		f.insecure, cmsPath, rv)
	watchfan := []string{"Via", "1.1 gate, 1.1 watchfan-abc"}
	for i, c := range []struct {
		seconds string
		header  []string
		passed  int
	}{{"3", nil, 0}, {"3", []string{"Via", "1.1 gate"}, 0}, {"300", watchfan, 0}, {"3", watchfan, 1}} {
		if w := proxytest.Open(t, uri+c.seconds, c.header...); w.Code != http.StatusOK {
			t.Errorf("watch %d: status %d", i, w.Code)
		}
		f.passed(c.passed)
	}
}

// A request that has already passed this watchfan is refused, with any method.
func TestLoopDetected(t *testing.T) {
	via := make(chan string, 1)
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			via <- r.Header.Get("Via")
		}
	}))
	f.do("GET", "/version", nil, "Via", "1.1 gate")
	ours := <-via
	if !strings.HasPrefix(ours, "1.1 gate, 1.1 watchfan-") {
		t.Fatalf("it came via %q", ours)
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		resp := f.do(method, "/version", nil, "Via", "1.1 first", "Via", ours+", 1.1 watchfan-other")
		body := bodyOf(t, resp)
		if resp.StatusCode != http.StatusLoopDetected || !strings.Contains(body, `"kind":"Status"`) ||
			!strings.Contains(body, `"code":508`) {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	if resp := f.do("GET", "/version", nil, "Via", "1.1 watchfan-other"); resp.StatusCode != http.StatusOK {
		t.Errorf("another watchfan's request: %s", resp.Status)
	}
	<-via
}
