package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// listServer is an aggregated API server whose resources answer a streaming list in different ways. They
// have the same objects.
type listServer struct {
	*ownThings

	mu      sync.Mutex
	names   []string // of the objects
	events  []string // types and names; the first event has resourceVersion 1001
	changed chan struct{}
	waits   map[string]bool // the resources that kubectl watches, and gets events of
}

// listWays are the resources: how each answers a watch with sendInitialEvents.
var listWays = map[string]string{
	"things":   "as KEP-3157 says",
	"ignoring": "as one without",
	"unended":  "with a bookmark that is not the end",
	"silent":   "with nothing",
	"refusing": "with an error",
}

func startListServer(t *testing.T, d *target) *listServer {
	t.Helper()
	s := &listServer{ownThings: &ownThings{group: "lists.example.com"}, names: []string{"dev-reader"},
		changed: make(chan struct{}), waits: make(map[string]bool)}
	s.port = startBackend(t, s.serve)
	s.register(t, d)
	return s
}

// change appends an event, after which the objects have the given names.
func (s *listServer) change(event, name string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.events = names, append(s.events, event+" "+name)
	close(s.changed)
	s.changed = make(chan struct{})
}

// meta begins an object of a resource, whose kind has the resource's name.
func (s *listServer) meta(resource string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":"%s/v1","metadata":`, resource, s.group)
}

func (s *listServer) object(resource, name string, rv int) string {
	return fmt.Sprintf(`%s{"name":%q,"uid":%[2]q,"resourceVersion":"%[3]d"}}`, s.meta(resource), name, rv)
}

func (s *listServer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	resource, name, one := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"+s.group+"/v1/"), "/")
	_, known := listWays[resource]
	switch {
	case r.URL.Path == "/apis/"+s.group+"/v1":
		var all []string
		for resource := range listWays {
			all = append(all, fmt.Sprintf(`{"name":%q,"singularName":%[1]q,"namespaced":false,"kind":%[1]q,"verbs":["get","list","watch"]}`, resource))
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[%s]}`, s.group, strings.Join(all, ","))
	case !known:
		s.ownThings.serve(w, r)
	case one:
		io.WriteString(w, s.object(resource, name, 1000))
	case r.URL.Query().Get("watch") == "":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `%s{"resourceVersion":"%d"},"items":[%s]}`, s.meta(resource+"List"), 1000+len(s.events),
			strings.Join(s.items(r, resource), ","))
	default:
		s.watch(w, r, resource)
	}
}

// items returns the objects that r selects.
func (s *listServer) items(r *http.Request, resource string) (items []string) {
	for _, name := range s.names {
		if selects(r, name) {
			items = append(items, s.object(resource, name, 1000))
		}
	}
	return items
}

func selects(r *http.Request, name string) bool {
	fields := r.URL.Query().Get("fieldSelector")
	return fields == "" || fields == "metadata.name="+name
}

func (s *listServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(cmp.Or(seconds, 3600))*time.Second)
	defer cancel()
	lists := q.Get("sendInitialEvents") == "true"
	switch {
	case lists && resource == "refusing":
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`)
		return
	case lists && resource == "silent":
		<-ctx.Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	if lists || from == 0 {
		for _, item := range s.items(r, resource) {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", item)
		}
		from = 1000 + len(s.events)
	}
	ends := map[string]string{"things": `"annotations":{"k8s.io/initial-events-end":"true"},`, "unended": ""}
	if end, ok := ends[resource]; lists && ok {
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":%s{%s"resourceVersion":"%d"}}}`+"\n", s.meta(resource), end, from)
	}
	if strings.HasPrefix(r.UserAgent(), "kubectl") && (!lists || resource == "things") {
		s.waits[resource] = true
	}
	for sent := from - 1000; ctx.Err() == nil; {
		for ; sent < len(s.events); sent++ {
			if event, name, _ := strings.Cut(s.events[sent], " "); selects(r, name) {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", event, s.object(resource, name, 1001+sent))
			}
		}
		_ = http.NewResponseController(w).Flush()
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}

// TestStreamingLists: informers of three releases of client-go, and kubectl, sync with all resources of an
// aggregated API server that ends streaming lists, ignores that it is asked for one, never ends it, or
// refuses; and with kube-apiserver without its feature gate WatchList, whose refusal is also ours. Then
// they get the next events.
func TestStreamingLists(t *testing.T) {
	parallel(t)
	programs := proxytest.InformerPrograms(t)
	c := privateCluster(t, "--apiserver-arg", "feature-gates=WatchList=false")
	d := c.direct(t)
	s := startListServer(t, d)
	p := privateWatchfan(t, c)
	p.waitReady(t)

	resources := []string{"configmaps"}
	for resource := range listWays {
		resources = append(resources, resource+"."+s.group)
	}
	running := make(map[string]*proxytest.InformerProcess)
	for _, release := range proxytest.ClientGoReleases {
		i := proxytest.Informers{Release: release, Client: "dynamic", Representation: "json", WatchList: true}
		process, err := i.Start(t.Context(), programs[release], "--resources", strings.Join(resources, ","), "--until", "last",
			"--timeout", steady.Patience.String(), "--server", "https://"+p.Ports.Secure,
			"--token-file", c.Ready.TokenFiles["admin"], "--ca-file", p.certificate())
		if err != nil {
			t.Fatal(err)
		}
		running[release] = process
	}
	kubectl := newKubectl(t, t.TempDir(), "secure", "--server", "https://"+p.Ports.Secure, "--certificate-authority", p.certificate(),
		"--token", c.token(t, "admin"))
	var waiting sync.WaitGroup
	for resource, way := range listWays {
		waiting.Go(func() {
			args := []string{"wait", "--for=delete", resource + "." + s.group + "/dev-reader", "--timeout", steady.Patience.String()}
			if words, err := kubectl.run(t.Context(), args); err != nil {
				t.Errorf("kubectl %q, of a server that answers %s: %v: %s", args, way, err, words)
			}
		})
	}
	for _, r := range running {
		<-r.Synced
	}
	steady.Until(t, "watches of kubectl", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.waits) < len(listWays) {
			return fmt.Errorf("it watches only %v", slices.Collect(maps.Keys(s.waits)))
		}
		return nil
	})
	s.change("DELETED", "dev-reader")
	s.change("ADDED", "last", "last")
	d.create(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"last"}}`)
	waiting.Wait()
	for release, r := range running {
		report, err := r.Report(steady.Patience)
		if err != nil {
			t.Error(err)
			continue
		}
		for name, got := range report.Resources {
			lists := 1
			if name == "things."+s.group {
				lists = 0
			}
			objects := len(got.Objects)
			if _, ok := got.Objects["last"]; name != "configmaps" && (!ok || objects != 1) ||
				!report.Synced || got.Lists != lists || got.WatchLists == 0 {
				t.Errorf("client-go %s, %s: synced: %t, %d lists, %d watch-lists, objects %v; want %d lists behind a watch-list\n%s", release, name,
					report.Synced, got.Lists, got.WatchLists, got.Objects, lists, strings.Join(report.Errors, "\n"))
			}
		}
	}
	checkRefusal(t, d, p.secure(t, c.token(t, "admin")), "/apis/"+s.group+"/v1/ignoring")
	if n := p.admin(t).metric(t, "watchfan_rejected_requests_total", `reason="endless_list"`); n < 12 {
		t.Errorf("%v streaming lists were refused, want those of 3 informers of each of 3 resources, those of kubectl, and one more", n)
	}
}

// checkRefusal: a streaming list that never ends is refused as kube-apiserver refuses all without its
// feature gate, in each representation.
func checkRefusal(t *testing.T, d, way *target, uri string) {
	t.Helper()
	const query = "?watch=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
	for _, accept := range []string{jsonType, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"} {
		header := http.Header{"Accept": {accept}}
		want, got := d.do(t, http.MethodGet, "/api/v1/configmaps"+query, header, ""), way.do(t, http.MethodGet, uri+query, header, "")
		if got.status != want.status || string(got.body) != string(want.body) || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
			t.Errorf("%s: got %d %s\nwant %d %s", accept, got.status, got.body, want.status, want.body)
		}
	}
}
