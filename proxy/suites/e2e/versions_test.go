//go:build nightly

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// collection is what informers follow, and an object to write to it.
type collection struct {
	name       string // RESOURCE or RESOURCE.GROUP
	root       string // of its API group
	namespaced bool
	object     string // JSON, in which NAME stands for its name
}

const (
	churned    = "churned" // namespace of what is written
	customFoos = "foos.versions.example.com"
)

var collections = []collection{
	{"configmaps", "/api/v1", true, `{"metadata":{"name":"NAME"},"data":{"k":"<&> é"},"binaryData":{"b":"AAEC"}}`},
	{"pods", "/api/v1", true, podBody("NAME", "")},
	{"secrets", "/api/v1", true, `{"metadata":{"name":"NAME"},"stringData":{"k":"v"}}`},
	{"nodes", "/api/v1", false, `{"metadata":{"name":"NAME"},"spec":{"podCIDR":"10.0.0.0/24"}}`},
	{"namespaces", "/api/v1", false, `{"metadata":{"name":"NAME"}}`},
	{"services", "/api/v1", true, `{"metadata":{"name":"NAME"},"spec":{"ports":[{"port":80}]}}`},
	{"deployments.apps", "/apis/apps/v1", true,
		`{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
	{"leases.coordination.k8s.io", "/apis/coordination.k8s.io/v1", true,
		`{"metadata":{"name":"NAME"},"spec":{"holderIdentity":"h","renewTime":"2026-01-02T03:04:05.000006Z"}}`},
	{customFoos, "/apis/versions.example.com/v1", true,
		`{"apiVersion":"versions.example.com/v1","kind":"Foo","metadata":{"name":"NAME"},` +
			`"spec":{"c":"red","n":9007199254740993,"z":"<&>","e":{}}}`},
}

// resource is the collection's name in paths.
func (c collection) resource() string { resource, _, _ := strings.Cut(c.name, "."); return resource }

// collectionNames returns what a client can follow.
func collectionNames(client string) []string {
	var names []string
	for _, c := range collections {
		if c.name != customFoos || client != "typed" {
			names = append(names, c.name)
		}
	}
	return names
}

// uri is where objects of the collection are created.
func (c collection) uri() string {
	if c.namespaced {
		return c.root + "/namespaces/" + churned + "/" + c.resource()
	}
	return c.root + "/" + c.resource()
}

func (c collection) create(d *target, name string) error {
	_, err := d.write(http.MethodPost, c.uri(), "application/json", strings.ReplaceAll(c.object, "NAME", name))
	return err
}

// objectsEach is how many objects of each collection are written to.
const objectsEach = 10

func churnName(i int) string { return fmt.Sprintf("churned-%d", i%objectsEach) }

// churnCollections updates objects, and deletes and recreates every fourth one, until stop is closed. Nobody finalizes
// namespaces here. It counts its steps.
func churnCollections(d *target, stop <-chan struct{}, steps *atomic.Int64) (err error) {
	for i := 0; err == nil && pace(stop, 10*time.Millisecond); i++ {
		steps.Store(int64(i))
		c, turn := collections[i%len(collections)], i/len(collections)
		one := c.uri() + "/" + churnName(turn)
		if turn%4 != 3 || c.name == "namespaces" {
			_, err = d.write(http.MethodPatch, one, "application/merge-patch+json",
				fmt.Sprintf(`{"metadata":{"labels":{"turn":"%d"}}}`, turn))
		} else if _, err = d.write(http.MethodDelete, one+"?gracePeriodSeconds=0", "application/json", ""); err == nil {
			err = c.create(d, churnName(turn))
		}
	}
	return err
}

// informerCases are all ways to run the program, except typed informers of custom resources and
// dynamic informers in protobuf, which do not exist.
func informerCases() []proxytest.Informers {
	var all []proxytest.Informers
	for _, release := range proxytest.ClientGoReleases {
		for _, kind := range [][2]string{{"typed", "json"}, {"typed", "protobuf"}, {"dynamic", "json"},
			{"metadata", "json"}, {"metadata", "protobuf"}} {
			for _, watchList := range []bool{false, true} {
				all = append(all, proxytest.Informers{Release: release, Client: kind[0],
					Representation: kind[1], WatchList: watchList})
			}
		}
	}
	return all
}

// lastObject is the name of the object that informers wait for.
const lastObject = "last"

// TestInformersOfManyVersions: informers of three releases of client-go, of every kind of client and in every
// representation, sync through watchfan and hold what kube-apiserver lists. None of their lists and watches reaches
// kube-apiserver, except lists of exactly one version by which they check themselves.
func TestInformersOfManyVersions(t *testing.T) {
	parallel(t)
	programs := proxytest.InformerPrograms(t)
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, churned)
	createCRD(t, direct, "versions.example.com", "Foo", "Namespaced")
	for _, col := range collections {
		for i := range objectsEach {
			if err := col.create(direct, churnName(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := plainWatchfan(t, c)
	p.waitReady(t)

	stop := make(chan struct{})
	var churning sync.WaitGroup
	var steps atomic.Int64
	churning.Go(func() {
		if err := churnCollections(direct, stop, &steps); err != nil {
			t.Error(err)
		}
	})
	running := make(map[proxytest.Informers]*proxytest.InformerProcess)
	for _, ic := range informerCases() {
		process, err := ic.Start(t.Context(), programs[ic.Release], "--resources", strings.Join(collectionNames(ic.Client), ","),
			"--until", lastObject, "--server", "https://"+p.Ports.Secure,
			"--token-file", c.Ready.TokenFiles["admin"], "--ca-file", p.certificate())
		if err != nil {
			t.Fatal(err)
		}
		running[ic] = process
	}
	for _, r := range running {
		<-r.Synced
	}
	count := func() int { return int(steps.Load()) }
	reach(t, "step", count()+8*len(collections), count) // each collection is updated, and an object deleted
	close(stop)
	churning.Wait()
	for _, col := range collections {
		if err := col.create(direct, lastObject); err != nil {
			t.Fatal(err)
		}
	}
	reports := make(map[proxytest.Informers]*proxytest.InformerReport)
	for ic, r := range running {
		var err error
		if reports[ic], err = r.Report(steady.Patience); err != nil {
			t.Error(err)
		}
	}
	versions := make(map[string]map[string]string)
	for _, col := range collections {
		versions[col.name] = versionsOf(t, direct, col.root+"/"+col.resource())
	}
	modern, checks := direct.enables(t, watchList), 0
	for _, ic := range informerCases() {
		t.Run(ic.String(), func(t *testing.T) {
			if reports[ic] == nil {
				t.Fatal("no report")
			}
			checkInformers(t, ic, reports[ic], modern)
			checkStores(t, reports[ic], versions)
			for _, res := range reports[ic].Resources {
				checks += res.Checks
			}
		})
	}
	passed := func(verb string) int {
		return int(p.admin(t).metric(t, "watchfan_passthrough_requests_total", fmt.Sprintf("verb=%q", verb)))
	}
	if lists, watches := passed("list"), passed("watch"); modern && (lists > checks || watches > 0) {
		t.Errorf("%d lists and %d watches were passed through, and informers checked themselves %d times", lists, watches, checks)
	}
}

// noWatchList matches what informers complain of where there are no watch-lists.
var noWatchList = regexp.MustCompile(`sendInitialEvents=true.*: 422 |watchlist request .*ended with an error`)

// checkInformers: the informers are of the release that was asked for, synced once and in the way
// that they were told, followed what happened, and complained of nothing. Without watch-lists, which
// modern says, they get an error for each and list.
func checkInformers(t *testing.T, ic proxytest.Informers, r *proxytest.InformerReport, modern bool) {
	t.Helper()
	want, refused := [3]int{1, 0, 1}, ic.WatchList && !modern
	switch {
	case refused:
		r.Errors = slices.DeleteFunc(r.Errors, func(line string) bool { return noWatchList.MatchString(line) })
	case ic.WatchList:
		want = [3]int{0, 1, 0}
	}
	if !strings.HasPrefix(r.ClientGo, ic.Release+".") {
		t.Errorf("client-go is %s, want %s", r.ClientGo, ic.Release)
	}
	if !r.Synced || len(r.Errors) > 0 {
		t.Errorf("synced: %t, errors: %s", r.Synced, strings.Join(r.Errors, "\n"))
	}
	for _, name := range collectionNames(ic.Client) {
		res := r.Resources[name]
		if refused {
			res.WatchLists = 0 // client-go tries once or twice
		}
		if got := [3]int{res.Lists, res.WatchLists, res.Watches}; got != want {
			t.Errorf("%s: %v lists, watch-lists and other watches, want %v", name, got, want)
		}
		if ic.Detected() && !refused && res.Checks == 0 {
			t.Errorf("%s: the inconsistency detector did not run", name)
		}
		if res.Updates == 0 || res.Deletes == 0 && name != "namespaces" {
			t.Errorf("%s: %d updates and %d deletes, want some of each", name, res.Updates, res.Deletes)
		}
	}
}

// checkStores compares what informers hold with kube-apiserver's lists. Its own leases may change at any time.
func checkStores(t *testing.T, r *proxytest.InformerReport, versions map[string]map[string]string) {
	t.Helper()
	for name, res := range r.Resources {
		got := make(map[string]string)
		for key, o := range res.Objects {
			if got[key] = o.ResourceVersion; name == "leases.coordination.k8s.io" && strings.HasPrefix(key, "kube-system/") {
				got[key] = versions[name][key]
			}
		}
		if !maps.Equal(got, versions[name]) {
			t.Errorf("%s: holds\n%v, want\n%v", name, got, versions[name])
		}
	}
}

// versionsOf lists at kube-apiserver: key to resourceVersion.
func versionsOf(t *testing.T, direct *target, uri string) map[string]string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(direct.get(t, uri).body, &list); err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]string)
	for _, o := range list.Items {
		versions[cache.MetaObjectToName(&o).String()] = o.ResourceVersion
	}
	return versions
}
