package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// startWatched runs a proxy with all ports.
func startWatched(t *testing.T, change ...func(*proxy.Options)) *fan {
	t.Helper()
	return startFan(t, proxytest.NewServer(t),
		append(change, both, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })...)
}

// debug sends a request to the admin port.
func (f *fan) debug(path string, header ...string) (code int, contentType, body string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.admin+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host") // "" is the URL's
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(content)
}

// watchers returns the answer to a query about watches.
func (f *fan) watchers(query string) (list diagnose.WatcherList) {
	f.t.Helper()
	code, contentType, body := f.debug("/debug/watchers?format=json&" + query)
	if code != http.StatusOK || contentType != "application/json" || json.Unmarshal([]byte(body), &list) != nil {
		f.t.Fatalf("%s: %d %s: %s", query, code, contentType, body)
	}
	return list
}

// ids returns the ids of the watches that match, in order.
func (f *fan) ids(query string) string {
	f.t.Helper()
	var ids []string
	for _, w := range f.watchers(query).Watchers {
		ids = append(ids, fmt.Sprint(w.ID))
	}
	return strings.Join(ids, " ")
}

// /debug/watchers shows the client, the scope and the progress of each watch. It sorts and filters.
// It does not show watches that have ended.
func TestDebugWatchers(t *testing.T) {
	t.Parallel()
	f := startWatched(t)
	f.cms.Put("ns", "a", "content-of-a", "app", "x")
	all := f.watch(anyState)
	all.Await(2)
	started := time.Now()
	one := proxytest.Open(t,
		f.insecure+"/api/v1/namespaces/ns/configmaps?watch=1&labelSelector=app%3Dx&timeoutSeconds=100", "User-Agent",
		"kubelet/v1.37 \u202e", "Accept-Encoding", "gzip")
	one.AwaitVersion(101)
	secure := proxytest.Open(t, f.secure+anyState+"&fieldSelector=metadata.name%3Db", "Authorization",
		"Bearer "+clientToken)
	rv := f.cms.Put("ns", "a", "content-of-a", "app", "x")
	all.AwaitVersion(rv)
	one.AwaitVersion(rv)
	f.until("third watch at the last event", func() bool { return f.watchers("").Reasons[diagnose.FilteredOut] == 1 })

	list := f.watchers("sort=id")
	if list.Total != 3 || list.Matching != 3 || len(list.Watchers) != 3 {
		t.Fatalf("%+v, want 3 watches", list)
	}
	got := list.Watchers[1]
	if got.ID != 2 || got.User != "(own)" || got.UserAgent != "kubelet/v1.37 \ufffd" ||
		got.Resource != "v1/configmaps" || got.Namespace != "ns" || got.LabelSelector != "app=x" ||
		got.FieldSelector != "" || got.Encoding != "json" || !got.Gzip || got.TLS || got.State != "Live" ||
		got.Parks != 0 || got.Events != 2 || got.Bytes == 0 ||
		got.ResourceVersion != fmt.Sprint(rv) || got.LagEvents != 0 || got.LagSeconds != 0 ||
		!got.ParkedSince.IsZero() {
		t.Errorf("the second watch: %+v", got)
	}
	if !strings.HasPrefix(got.Client, "127.0.0.1:") || got.Started.Sub(started).Abs() > 5*time.Second ||
		got.Deadline.Sub(got.Started).Round(time.Second) != 100*time.Second {
		t.Errorf("the second watch: client %s, started %s, deadline %s", got.Client, got.Started, got.Deadline)
	}
	third := list.Watchers[2]
	if !third.TLS || third.User != "(token)" || third.FieldSelector != "metadata.name=b" ||
		third.Reason != diagnose.FilteredOut {
		t.Errorf("the third watch: %+v", third)
	}

	for query, want := range map[string]string{
		"":                               "3 1 2", // FilteredOut comes before UpToDate
		"sort=id":                        "1 2 3",
		"sort=events":                    "1 2 3",
		"sort=age":                       "1 2 3",
		"sort=selector":                  "1 3 2",
		"sort=user":                      "1 2 3",
		"sort=userAgent":                 "2 1 3",
		"sort=resource&limit=2":          "1 2",
		"sort=lag&minLagEvents=1":        "",
		"sort=id&user=(own)":             "1 2",
		"userAgent=kubelet":              "2",
		"namespace=ns":                   "2",
		"selector=app%3D":                "2",
		"selector=metadata.name":         "3",
		"sort=id&resource=configmaps":    "1 2 3",
		"sort=id&resource=v1/configmaps": "1 2 3",
		"resource=pods":                  "",
		"state=Parked":                   "",
		"sort=id&state=Live&minAge=0s":   "1 2 3",
		"reason=FilteredOut":             "3",
		"minAge=1h":                      "",
		"minLagBytes=1Ki":                "",
	} {
		if got := f.ids(query); got != want {
			t.Errorf("%s: watches %s, want %s", query, got, want)
		}
	}

	code, contentType, text := f.debug("/debug/watchers")
	if code != http.StatusOK || !strings.HasPrefix(contentType, "text/plain") ||
		!strings.HasPrefix(text, "3 watches, 3 matching, 3 shown: 1 FilteredOut, 2 UpToDate\n\nID ") ||
		strings.Count(text, "\n") != 6 {
		t.Errorf("as text: %d %s %s", code, contentType, text)
	}
	_, contentType, verdict := f.debug("/debug/watchers/3", "Accept", "application/json")
	var status diagnose.WatcherStatus
	if contentType != "application/json" || json.Unmarshal([]byte(verdict), &status) != nil || status.Verdict == nil ||
		status.Verdict.Reason != diagnose.FilteredOut || status.TCP == nil {
		t.Errorf("the third watch's verdict: %s %s", contentType, verdict)
	}
	_, _, said := f.debug("/debug/watchers/3")
	if !strings.HasPrefix(said, "Watch 3: FilteredOut\n") || !strings.Contains(said, status.Verdict.Advice) {
		t.Errorf("the third watch's verdict: %s", said)
	}
	for _, answer := range []string{text, verdict, said} {
		if strings.Contains(answer, clientToken) || strings.Contains(answer, ownToken) ||
			strings.Contains(answer, "content-of-a") || strings.Contains(answer, "\u202e") {
			t.Errorf("shows a token, an object's content or a control character: %s", answer)
		}
	}

	one.Close()
	f.until("end of the second watch", func() bool { return f.ids("sort=id") == "1 3" })
	if code, _, body := f.debug("/debug/watchers/2"); code != http.StatusNotFound ||
		!strings.Contains(body, "no watch 2") {
		t.Errorf("an ended watch: %d %s", code, body)
	}
	secure.Close()
}

// The answer to a wrong query names the right ones.
func TestDebugWatchersBadQueries(t *testing.T) {
	t.Parallel()
	f := startWatched(t)
	for path, says := range map[string]string{
		"?lag=1":                   "give any of format, limit, sort",
		"?limit=0":                 "from 1 to 10000",
		"?limit=10001":             "from 1 to 10000",
		"?limit=x":                 "from 1 to 10000",
		"?limit=1&limit=2":         "limit is given twice",
		"?sort=fastest":            "slowest, lag",
		"?format=yaml":             "json, text",
		"?state=Dead":              "InitialEvents, Replaying",
		"?reason=BadLuck":          "ClientNotReading",
		"?minLagEvents=-1":         "give a number",
		"?minLagBytes=-1":          "1Mi",
		"?minLagBytes=many":        "1Mi",
		"?minAge=10":               "10m",
		"/x":                       "is no watch's id",
		"/1/2":                     "is no watch's id",
		"/-1":                      "is no watch's id",
		"/99999999999999999999999": "is no watch's id",
		"/1?sort=lag":              "give any of format",
	} {
		code, _, body := f.debug("/debug/watchers" + path)
		if code != http.StatusBadRequest || !strings.Contains(body, says) || strings.Contains(body, "%!") {
			t.Errorf("%s: %d %s, want 400 and %q", path, code, body, says)
		}
	}
	if code, _, body := f.debug("/debug/watchers/7"); code != http.StatusNotFound {
		t.Errorf("no such watch: %d %s", code, body)
	}
	resp, err := http.Post(f.admin+"/debug/watchers", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// Without --profiling, watches are shown to clients on this host only, and not to web pages in a
// browser on this host.
func TestDebugWatchersForeign(t *testing.T) {
	t.Parallel()
	f := startWatched(t, func(o *proxy.Options) { o.Profiling = false })
	if code, _, body := f.debug("/debug/watchers"); code != http.StatusOK {
		t.Errorf("from here: %d %s", code, body)
	}
	code, _, body := f.debug("/debug/watchers", "Host", "pages.example")
	if code != http.StatusForbidden || !strings.Contains(body, "port-forward") {
		t.Errorf("as another host: %d %s", code, body)
	}
	if code, _, _ := f.debug("/debug/watchers", "Origin", "http://pages.example"); code != http.StatusForbidden {
		t.Errorf("from a page of another host: %d", code)
	}
}

// An eviction is logged once, with the verdict's reason and the numbers that led to it. It is
// counted by this reason.
func TestEvictionVerdict(t *testing.T) {
	t.Parallel()
	eachPort(t, func(t *testing.T, secure bool) {
		f := startWatched(t, func(o *proxy.Options) { o.Lane.ClientBufferFrames = 20 })
		f.unread(t, secure, anyState)
		for i := 0; len(f.log.with("Evicted watch")) == 0; i++ {
			if i == 300 {
				t.Fatal("no eviction")
			}
			f.cms.Put("ns", "a", strings.Repeat("x", 256<<10))
			time.Sleep(50 * time.Millisecond) // the client's window must have been closed for a while
		}
		lines := f.log.with("Evicted watch", "reason=ClientNotReading", "lagEvents=", "windowBytes=0 ",
			"client=127.0.0.1:")
		if len(lines) != 1 || strings.Contains(lines[0], clientToken) {
			t.Errorf("logged %q", f.log.with("Evicted watch"))
		}
		_, _, metrics := f.debug("/metrics")
		if n := proxytest.SumMetric(metrics, "watchfan_evictions_total", `reason="ClientNotReading"`); n != 1 {
			t.Errorf("%v evictions are counted, want 1", n)
		}
		f.until("end of the watch", func() bool { return f.watchers("").Total == 0 })
	})
}

// A watch that selects every change is never FilteredOut, however fast the changes come and whenever
// the page looks.
func TestVerdictsOfOneSample(t *testing.T) {
	f := startWatched(t)
	const watches = 50
	for range watches {
		f.watch("/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion=0")
	}
	f.until("watches", func() bool { return len(f.watchers("").Watchers) == watches })
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				f.cms.Put("ns", "a", strconv.Itoa(i))
				time.Sleep(time.Millisecond)
			}
		}
	})
	defer writer.Wait()
	defer close(done)
	f.until("changes", func() bool { return f.watchers("").Watchers[0].Events > 10 })
	for range 200 {
		if list := f.watchers(""); list.Reasons[diagnose.FilteredOut] > 0 {
			t.Fatalf("a watch of all changes: %s", list.Counts())
		}
	}
}
