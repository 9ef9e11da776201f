package diagnose_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// ids returns the ids of the watches that match, in order.
func ids(p *bubble.Proxy, query string) string {
	p.T.Helper()
	var ids []string
	for _, w := range p.Watchers(query).Watchers {
		ids = append(ids, fmt.Sprint(w.ID))
	}
	return strings.Join(ids, " ")
}

// /debug/watchers shows the client, the scope and the progress of each watch. It sorts and filters.
// It does not show watches that have ended.
func TestDebugWatchers(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "content-of-a", "app", "x")
		open := func(r bubble.Request) *bubble.Client {
			c := p.Send(r)
			synctest.Wait() // its id is given behind its head
			return c
		}
		open(bubble.Request{Target: bubble.AnyState})
		started := time.Now()
		one := open(bubble.Request{Target: "/api/v1/namespaces/ns/configmaps?watch=1&labelSelector=app%3Dx&timeoutSeconds=100",
			Header: []string{"User-Agent", "kubelet/v1.37 \u202e", "Accept-Encoding", "gzip"}})
		open(bubble.Request{Target: bubble.AnyState + "&fieldSelector=metadata.name%3Db", Token: bubble.ClientToken})
		time.Sleep(time.Second)
		rv := p.CMs.Put("ns", "a", "content-of-a", "app", "x")
		synctest.Wait()

		list := p.Watchers("sort=id")
		if list.Total != 3 || list.Matching != 3 || len(list.Watchers) != 3 {
			t.Fatalf("%+v, want 3 watches", list)
		}
		got := list.Watchers[1]
		if got.ID != 2 || got.User != "(own)" || got.UserAgent != "kubelet/v1.37 \ufffd" || got.Client != "127.0.0.1:1" ||
			got.Resource != "v1/configmaps" || got.Namespace != "ns" || got.LabelSelector != "app=x" ||
			got.FieldSelector != "" || got.Encoding != "json" || !got.Gzip || got.TLS || got.State != "Live" ||
			got.Parks != 0 || got.Events != 2 || got.Bytes == 0 ||
			got.ResourceVersion != fmt.Sprint(rv) || got.LagEvents != 0 || got.LagSeconds != 0 ||
			!got.ParkedSince.IsZero() || !got.Started.Equal(started) || got.Deadline.Sub(started) != 100*time.Second {
			t.Errorf("the second watch: %+v", got)
		}
		if third := list.Watchers[2]; !third.TLS || third.User != "(token)" || third.FieldSelector != "metadata.name=b" ||
			third.Reason != watchers.FilteredOut {
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
			if got := ids(p, query); got != want {
				t.Errorf("%s: watches %s, want %s", query, got, want)
			}
		}

		resp, text := p.Admin("/debug/watchers")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") ||
			!strings.HasPrefix(text, "3 watches, 3 matching, 3 shown: 1 FilteredOut, 2 UpToDate\n\nID ") ||
			strings.Count(text, "\n") != 6 {
			t.Errorf("as text: %s %s", resp.Status, text)
		}
		var status diagnose.WatcherStatus
		p.AdminJSON("/debug/watchers/3", &status)
		_, said := p.Admin("/debug/watchers/3")
		if status.Verdict == nil || status.Verdict.Reason != watchers.FilteredOut || !strings.HasPrefix(said, "Watch 3: FilteredOut\n") ||
			!strings.Contains(said, status.Verdict.Advice) {
			t.Errorf("the third watch's verdict: %+v: %s", status.Verdict, said)
		}
		_, verdict := p.Admin("/debug/watchers/3?format=json")
		for _, answer := range []string{text, verdict, said} {
			if strings.Contains(answer, bubble.ClientToken) || strings.Contains(answer, bubble.OwnToken) ||
				strings.Contains(answer, "content-of-a") || strings.Contains(answer, "\u202e") {
				t.Errorf("shows a token, an object's content or a control character: %s", answer)
			}
		}

		one.Leave()
		synctest.Wait()
		if got := ids(p, "sort=id"); got != "1 3" {
			t.Errorf("after the end of the second watch: %s", got)
		}
		if resp, body := p.Admin("/debug/watchers/2"); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "no watch 2") {
			t.Errorf("an ended watch: %s %s", resp.Status, body)
		}
	})
}

// The answer to a wrong query names the right ones.
func TestDebugWatchersBadQueries(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
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
			resp, body := p.Admin("/debug/watchers" + path)
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, says) || strings.Contains(body, "%!") {
				t.Errorf("%s: %s %s, want 400 and %q", path, resp.Status, body, says)
			}
		}
		if resp, body := p.Admin("/debug/watchers/7"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("no such watch: %s %s", resp.Status, body)
		}
		w, post := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "http://localhost/debug/watchers", nil)
		post.RemoteAddr = "127.0.0.1:1"
		p.Server.Admin().ServeHTTP(w, post)
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
	})
}

// Without --profiling, watches are shown to clients on this host only, and not to web pages in a
// browser on this host.
func TestDebugWatchersForeign(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		if resp, body := p.Admin("/debug/watchers"); resp.StatusCode != http.StatusOK {
			t.Errorf("from here: %s %s", resp.Status, body)
		}
		for header, value := range map[string]string{"Host": "pages.example", "Origin": "http://pages.example"} {
			if resp, body := p.Admin("/debug/watchers", header, value); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "port-forward") {
				t.Errorf("%s: %s: %s %s", header, value, resp.Status, body)
			}
		}
	}, func(o *proxy.Options) { o.Profiling = false })
}

// A watch that selects every change is never FilteredOut, however fast the changes come and whenever
// the page looks.
func TestVerdictsOfOneSample(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		for range 20 {
			p.Watch("/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion=0")
		}
		for range 50 {
			time.Sleep(time.Millisecond)
			for i := range 10 { // which come while the page looks
				p.CMs.Put("ns", "a", strconv.Itoa(i))
			}
			if list := p.Watchers(""); list.Reasons[watchers.FilteredOut] > 0 {
				t.Fatalf("a watch of all changes: %s", list.Counts())
			}
		}
	})
}

// The pages say how many watches pass through and why. No client's name is where everybody may look.
func TestDebugPassed(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		open := func(target, accept string) *bubble.Client {
			return p.Send(bubble.Request{Target: target, Header: []string{"Accept", accept}})
		}
		rows := open(bubble.CMs+"?watch=true", proxytest.TableAccept)
		time.Sleep(time.Second)
		open("/api/v1/namespaces/ns/configmaps?watch=true&resourceVersion=0&labelSelector=app%3Dx", proxytest.TableAccept)
		open(fmt.Sprintf(bubble.CMs+"?watch=true&resourceVersion=%d&includeObject=None", rv), proxytest.TableAccept)
		open(bubble.CMs+"?watch=true", "application/yaml")
		open(fmt.Sprintf(bubble.CMs+"?watch=true&resourceVersion=%d", rv), proxytest.TableAccept) // from its lane
		synctest.Wait()
		p.Passed(4)

		list := p.Watchers("").Passed
		want := map[request.Reason]int{request.TableRows: 2, request.TableNoObjects: 1, request.Form: 1}
		if fmt.Sprint(list.Reasons) != fmt.Sprint(want) || list.Total != 4 || list.Matching != 4 {
			t.Errorf("passed through: %+v, want %v", list, want)
		}
		one := p.Watchers("namespace=ns&resource=configmaps&userAgent=proxytest&limit=1").Passed
		if len(one.Watchers) != 1 || one.Total != 4 || one.Watchers[0].Selector() != "-n ns -l app=x" || one.Watchers[0].Resource != "v1/configmaps" || one.Watchers[0].User != "(own)" {
			t.Errorf("one of them: %+v", one)
		}
		for query, want := range map[string]int{"state=Live": 0, "reason=UpToDate": 0, "minLagEvents=1": 0, "user=x": 0, "minAge=1h": 0,
			"minAge=1s": 1, "resource=pods": 0, "selector=y": 0} {
			if n := p.Watchers(query).Passed.Matching; n != want {
				t.Errorf("%s: %d match, want %d", query, n, want)
			}
		}
		_, text := p.Admin("/debug/watchers")
		if !strings.Contains(text, "4 watches pass through, 4 matching, 4 shown: 2 table_rows, 1 representation, 1 table_no_objects") ||
			!strings.Contains(text, "whose ages only kube-apiserver computes") {
			t.Errorf("/debug/watchers: %s", text)
		}
		_, lanes := p.Admin("/debug/lanes?format=json")
		if !strings.Contains(lanes, `{"resource":"v1/configmaps","reason":"table_rows","message":"the client wants Tables that begin with the objects`) ||
			strings.Contains(lanes, proxytest.ClientAgent) || strings.Contains(lanes, "app=x") {
			t.Errorf("/debug/lanes: %s", lanes)
		}
		_, metrics := p.Admin("/metrics")
		if n := proxytest.SumMetric(metrics, "watchfan_passthrough_watches_total", `reason="table_no_objects"`); n != 1 {
			t.Errorf("%v counted without objects", n)
		}
		rows.Leave()
		synctest.Wait()
		if n := p.Watchers("").Passed.Total; n != 3 {
			t.Errorf("%d pass through after the end of one", n)
		}
	})
}
