package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// ownThings is an aggregated API server that shows each user only the objects with the user's name,
// and the administrator all objects.
type ownThings struct{ group, port string }

func startOwnThings(t *testing.T, group string) *ownThings {
	t.Helper()
	s := &ownThings{group: group}
	s.port = startBackend(t, s.serve)
	return s
}

// startBackend starts an API server that kube-apiserver may be told of, and returns its port.
func startBackend(t *testing.T, serve http.HandlerFunc) (port string) {
	t.Helper()
	server := httptest.NewTLSServer(serve)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address.Port()
}

func (s *ownThings) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	gv := s.group + "/v1"
	switch r.URL.Path {
	case "/apis/" + s.group:
		fmt.Fprintf(w,
			`{"kind":"APIGroup","apiVersion":"v1","name":%q,"versions":[{"groupVersion":%[2]q,"version":"v1"}],`+
				`"preferredVersion":{"groupVersion":%[2]q,"version":"v1"}}`, s.group, gv)
	case "/apis/" + gv:
		fmt.Fprintf(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[{"name":"things",`+
				`"singularName":"thing","namespaced":false,"kind":"Thing","verbs":["get","list","watch"]}]}`, gv)
	case s.uri():
		s.things(w, r)
	default:
		if i, err := strconv.Atoi(path.Base(r.URL.Path)); err == nil && i < len(oddAnswers) {
			oddAnswers[i].write(w)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// oddAnswer is an answer of another API server. fields are names and values.
type oddAnswer struct {
	code   int
	fields []string
}

// oddAnswers have fields that come more than once, that kube-apiserver sends itself, or that mean
// something to proxies.
var oddAnswers = []oddAnswer{
	{200, []string{"Set-Cookie", "a=1", "Set-Cookie", "a=2; Path=/x", "Link", "<a>", "Link", "<b>", "Deprecation", "@1", "Sunset", "x"}},
	{200, []string{"Warning", `299 - "theirs"`, "Warning", `199 - "other"`, "Retry-After", "7", "X-Kubernetes-Pf-Flowschema-Uid", "x", "Audit-Id", "theirs"}},
	{200, []string{"Cache-Control", "max-age=5", "Age", "3", "Etag", `"x"`, "Vary", "*", "Server", "theirs", "Content-Type", "text/x; a=b", "Content-Language", "de"}},
	{200, []string{"X-Empty", "", "X-Bytes", "é\xff", "X-Tab", "a\tb", "X-Long", strings.Repeat("x", 200_000)}},
	{200, []string{"Connection", "X-Dropped", "X-Dropped", "a", "Keep-Alive", "timeout=5", "Proxy-Authenticate", "x", "Upgrade", "x", "Content-Encoding", "br"}},
	{200, []string{"Strict-Transport-Security", "max-age=1", "Alt-Svc", `h3=":1"`, "Via", "1.1 theirs", "Access-Control-Allow-Origin", "*"}},
	{401, []string{"Www-Authenticate", "Basic", "Www-Authenticate", "Bearer"}},
	{307, []string{"Location", "https://elsewhere/x"}}, {204, nil}, {304, []string{"Etag", `"x"`}}, {299, nil}, {429, []string{"Retry-After", "3"}}, {503, nil}, {999, nil},
}

func (a oddAnswer) write(w http.ResponseWriter) {
	w.Header().Del("Content-Type")
	for i := 0; i < len(a.fields); i += 2 {
		w.Header()[a.fields[i]] = append(w.Header()[a.fields[i]], a.fields[i+1])
	}
	w.WriteHeader(a.code)
	if a.code != http.StatusNoContent && a.code != http.StatusNotModified {
		fmt.Fprint(w, "body")
	}
}

func (s *ownThings) things(w http.ResponseWriter, r *http.Request) {
	user, q := r.Header.Get("X-Remote-User"), r.URL.Query()
	var items []string
	for i, owner := range []string{"dev-user", "dev-reader", "somebody-else"} {
		if (user == "dev-admin" || user == owner) && q.Get("fieldSelector") == "" {
			items = append(items,
				fmt.Sprintf(`{"kind":"Thing","apiVersion":"%s/v1","metadata":{"name":%q,"uid":"%d",`+
					`"resourceVersion":"%d"}}`, s.group, owner, i, 1000+i))
		}
	}
	switch {
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case q.Get("watch") == "":
		fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":"%s/v1","metadata":{"resourceVersion":"2000"},"items":[%s]}`+
			"\n", s.group, strings.Join(items, ","))
	default:
		for _, item := range items {
			if rv := q.Get("resourceVersion"); rv == "" || rv == "0" {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", item)
			}
		}
		_ = http.NewResponseController(w).Flush()
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(max(seconds, 1))*time.Second)
		defer cancel()
		<-ctx.Done()
	}
}

// register has kube-apiserver send requests for the group here.
func (s *ownThings) register(t *testing.T, d *target) {
	t.Helper()
	d.create(t, "/api/v1/namespaces/default/services",
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"ExternalName","externalName":"localhost"}}`, s.service()))
	spec := fmt.Sprintf(`"spec":{"group":%q,"version":"v1","groupPriorityMinimum":1000,"versionPriority":100,`+
		`"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":%q,"port":%s}}`,
		s.group, s.service(), s.port)
	if d.get(t, s.apiService()).status == http.StatusOK { // kube-apiserver's own, which it would put back
		d.patch(t, s.apiService(),
			`{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},`+spec+`}`)
	} else {
		d.create(t, apiServicesPath, fmt.Sprintf(`{"metadata":{"name":"v1.%s"},%s}`, s.group, spec))
	}
	s.answers(t, d, "dev-reader")
}

// answers waits until kube-apiserver shows a thing, or with "!" in front until it no longer does.
func (s *ownThings) answers(t *testing.T, d *target, name string) {
	t.Helper()
	name, not := strings.CutPrefix(name, "!")
	steady.Until(t, "things of "+s.group, func() error {
		resp, err := d.try(http.MethodGet, s.uri(), nil, "")
		if err == nil && (resp.status != http.StatusOK || strings.Contains(string(resp.body), name) == not) {
			err = fmt.Errorf("%d: %s", resp.status, resp.body)
		}
		return err
	})
}

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

func (s *ownThings) service() string    { return strings.ReplaceAll(s.group, ".", "-") }
func (s *ownThings) apiService() string { return apiServicesPath + "/v1." + s.group }
func (s *ownThings) uri() string        { return "/apis/" + s.group + "/v1/things" }

// sameAnswers: a client gets all codes and header fields of another API server as from
// kube-apiserver, and those that kube-apiserver adds.
func (s *ownThings) sameAnswers(t *testing.T, theirs *target, ways []*target) {
	t.Helper()
	for i := range oddAnswers {
		for _, query := range []string{"", "?watch=1"} { // which may last
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				uri := fmt.Sprintf("/apis/%s/v1/odd/%d%s", s.group, i, query)
				for _, ours := range ways {
					want, got := theirs.answer(t, method, uri), ours.answer(t, method, uri)
					if got != want {
						t.Errorf("%s %s through %s:\n got %.1000s\nwant %.1000s", method, uri, ours.name, got, want)
					}
				}
			}
		}
	}
}

// answer returns an answer as text: its code, its fields without those that differ each time, and its
// body.
func (d *target) answer(t *testing.T, method, uri string) string {
	t.Helper()
	resp := d.do(t, method, uri, http.Header{"Accept-Encoding": {"identity"}}, "")
	h := resp.header
	for _, name := range []string{"Date", "Transfer-Encoding", "X-Kubernetes-Pf-Prioritylevel-Uid"} {
		h.Del(name)
	}
	if own := h.Get("Audit-Id"); own != "theirs" {
		h.Set("Audit-Id", "")
	}
	if uids := h["X-Kubernetes-Pf-Flowschema-Uid"]; len(uids) > 0 {
		h["X-Kubernetes-Pf-Flowschema-Uid"] = uids[len(uids)-1:]
	}
	return fmt.Sprintf("%d %q %q", resp.status, h, resp.body)
}

// shows fails the test unless a list shows one thing, from the cache or not.
func (s *ownThings) shows(t *testing.T, resp response, name string, cached bool) {
	t.Helper()
	if body := string(resp.body); resp.status != http.StatusOK || proxytest.FromCache(resp.header) != cached ||
		strings.Count(body, `"kind":"Thing"`) != 1 || !strings.Contains(body, `"name":"`+name+`"`) {
		t.Errorf("want %s: from the cache %t: %s", name, proxytest.FromCache(resp.header), resp.body)
	}
}

// TestAggregation: an aggregated API server that answers each user differently does so through
// watchfan too, in lists and watches. The operator may declare that it answers all users alike.
// When it takes over a cached group, the watches end. The cache serves nothing more until kube-apiserver has the
// group back.
func TestAggregation(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	d := c.direct(t)
	s, taken := startOwnThings(t, "own.example.com"), startOwnThings(t, "taken.example.com")
	s.register(t, d)
	createCRD(t, d, taken.group, "Thing", "Cluster")
	d.create(t, taken.uri(), fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"defined"}}`, taken.group))
	for _, user := range []string{"dev-user", "dev-reader"} {
		d.allow(t, "", user, "User "+user, "get,list,watch own.example.com/things", "get,list,watch taken.example.com/things")
	}
	p := privateWatchfan(t, c)
	p.waitReady(t)
	s.sameAnswers(t, d, p.ways(t, c.token(t, "admin")))
	for range 3 {
		for user, name := range map[string]string{"user": "dev-user", "reader": "dev-reader"} {
			way := p.secure(t, c.token(t, user))
			for _, query := range []string{"", "?resourceVersion=0"} {
				s.shows(t, way.get(t, s.uri()+query), name, false)
			}
			w := way.watch(t, s.uri()+"?watch=1&resourceVersion=0")
			if events := w.wait(t, 1); events[0].key != name {
				t.Errorf("watch: %s was shown %v", name, events)
			}
			w.stop()
		}
	}
	trusting := privateWatchfan(t, c, "--cache-aggregated-groups="+s.group, "--resident-resources=things."+s.group)
	trusting.waitReady(t)
	warm(t, []*target{trusting.secure(t, c.token(t, "admin"))}, s.uri())

	resident := privateWatchfan(t, c, "--resident-resources=configmaps,things."+s.group)
	resident.waitReady(t)
	if log := proxytest.Tail(resident.Log, 100); !strings.Contains(log, "Passed resident resource through") {
		t.Errorf("the log does not name the resident resource:\n%s", log)
	}

	way := p.secure(t, c.token(t, "user"))
	warm(t, []*target{way}, taken.uri())
	w := way.watch(t, taken.uri()+"?watch=1&resourceVersion=0")
	p.admin(t).awaitWatchers(t, 1)
	taken.register(t, d)
	w.finish(t)
	taken.shows(t, way.get(t, taken.uri()+"?resourceVersion=0"), "dev-user", false)
	if n := p.admin(t).metric(t, "watchfan_watches_ended_total", `reason="redefined"`); n != 1 {
		t.Errorf("%v watches ended as redefined, want 1", n)
	}
	d.must(t, http.MethodDelete, taken.apiService(), jsonType, "")
	taken.answers(t, d, "defined")
	warm(t, []*target{way}, taken.uri())
	taken.shows(t, way.get(t, taken.uri()+"?resourceVersion=0"), "defined", true)
	checkAggregationUnknown(t, c, taken.uri(), taken.group)
}

// checkAggregationUnknown: without the right to read APIServices, built-in groups are cached. Custom
// resources are passed through unless the operator names their group.
func checkAggregationUnknown(t *testing.T, c *cluster, uri, group string) {
	t.Helper()
	c.direct(t).allow(t, "", "unknown", "User dev-user", "get,list,watch /configmaps", "list,watch apiextensions.k8s.io/customresourcedefinitions")
	p := watchfanAs(t, c.Ready.Kubeconfigs["user"])
	way := p.secure(t, c.token(t, "admin"))
	warm(t, []*target{way}, "/api/v1/configmaps")
	for range 10 {
		if resp := way.get(t, uri+"?resourceVersion=0"); resp.status != http.StatusOK || proxytest.FromCache(resp.header) {
			t.Fatalf("from the cache: %t, %d %s", proxytest.FromCache(resp.header), resp.status, resp.body)
		}
	}
	if log, err := os.ReadFile(p.Log); err != nil ||
		strings.Count(string(log), "list and watch apiservices.apiregistration.k8s.io") != 1 {
		t.Errorf("the log does not name the missing right exactly once: %v\n%s", err, proxytest.Tail(p.Log, 60))
	}
	trusting := watchfanAs(t, c.Ready.Kubeconfigs["user"], "--cache-aggregated-groups="+group)
	warm(t, []*target{trusting.secure(t, c.token(t, "admin"))}, uri)
}
