package proxy_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// checkEvery is the interval of self-checks in these tests, the shortest that there is.
const checkEvery = time.Second

// startChecked runs a proxy that compares its caches all the time. Its lists come in pages of two
// objects.
func startChecked(t *testing.T) *fan {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.AdminPort, o.SelfCheck.SelfCheckInterval = proxy.AnyPort, checkEvery
	})
	f.up.On(proxytest.List, 1000, smallPage)
	return f
}

// smallPage answers a list with a page of two objects.
func smallPage(c *proxytest.Call) {
	c.Query.Set("limit", "2")
	c.Serve()
}

// awaitChecks waits for n comparisons with a result that end from now on, and for one more before
// them, which may have begun earlier.
func (f *fan) awaitChecks(result string, n int) {
	f.t.Helper()
	seen, count := f.theLane().SelfCheck, -1
	f.until(fmt.Sprintf("%d checks with result %s", n, result), func() bool {
		c := f.theLane().SelfCheck
		if c == nil || seen != nil && c.Time.Sub(seen.Time) < checkEvery/4 { // the same one
			return false
		}
		seen = c
		if c.Result == result {
			count++
		}
		return count >= n
	})
}

// wantAlarms fails the test unless n to most comparisons have found a difference.
func (f *fan) wantAlarms(n, most int) {
	f.t.Helper()
	if got := f.log.with("Self-check found"); len(got) < n || len(got) > most {
		f.t.Errorf("%d alarms, want %d to %d: %s", len(got), n, most, got)
	}
}

// digestOf is the digest as package selfcheck describes it. objects are pairs of key and uid with a
// resourceVersion.
func digestOf(objects ...string) string {
	sum := new(big.Int)
	for _, o := range objects {
		hash := sha256.Sum256([]byte(strings.ReplaceAll(o, " ", "\x00")))
		sum.Add(sum, new(big.Int).SetBytes(hash[:16]))
	}
	return fmt.Sprintf("%032x", sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128)))
}

// Lanes that are right are never different, whether they are busy, quiet or empty. /debug/lanes
// shows the digest, which is the same for each representation.
func TestSelfCheckEqual(t *testing.T) {
	f := startChecked(t)
	f.watch(anyState).Await(1)
	f.awaitChecks("equal", 1)
	if c := f.theLane().SelfCheck; c == nil || c.Result != "equal" || c.Digest != digestOf() || c.Objects != 0 {
		t.Errorf("empty: got %+v", c)
	}
	for i := range 5 {
		f.cms.Put("ns", fmt.Sprint("a", i), "1")
	}
	f.cms.Put("ns-b", "x", "1") // "ns-b/" sorts before "ns/"
	f.cms.Delete("ns", "a3")
	f.up.Bump(5) // the lane does not hear of it
	f.awaitChecks("equal", 1)
	c := f.theLane().SelfCheck
	want := digestOf("ns/a0 u1 101", "ns/a1 u2 102", "ns/a2 u3 103", "ns/a4 u5 105", "ns-b/x u6 106")
	if c.ResourceVersion != "112" || c.Digest != want || c.Objects != 5 || time.Since(c.Time) > proxytest.Patience {
		t.Errorf("got %+v, want %s of 5 at 112", c, want)
	}
	f.wantAlarms(0, 0)
	f.until("the plan of the next", func() bool {
		due := f.theLane().SelfCheckDue
		return due != nil && time.Until(*due) > 0 && time.Until(*due) <= checkEvery
	})
	if _, _, text := f.askAdmin("/debug/lanes", ""); !strings.Contains(text, "  equal, ") {
		t.Errorf("no self-check in %s", text)
	}
	if got := f.log.with("level=ERROR"); len(got) > 0 {
		t.Errorf("logged %s", got)
	}
}

// A lane is compared while many changes come, and while its stream is late.
func TestSelfCheckBusy(t *testing.T) {
	f := startChecked(t)
	f.watch(anyState).Await(1)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			f.cms.Put("ns", fmt.Sprint("a", i%12), "1")
			if i%7 == 0 {
				f.cms.Delete("ns", fmt.Sprint("a", i%12))
			}
			if i%300 == 0 {
				st := f.cms.Reflector()
				st.Hold()
				time.AfterFunc(400*time.Millisecond, st.Release) // later than catchUp
			}
		}
	}()
	defer func() { close(stop); <-done }()
	f.awaitChecks("equal", 3)
	f.wantAlarms(0, 0)
}

// A difference in the first page is found although the objects there change all the time.
func TestSelfCheckBusyDifferent(t *testing.T) {
	f := startChecked(t)
	for i := range 5 {
		f.cms.Put("ns", fmt.Sprint("a", i), "1")
	}
	f.watch(anyState).Await(6)
	f.cms.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "a00", f.up.Bump(1)))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				f.cms.Put("ns", "a0", "1")
			}
		}
	}()
	defer func() { close(stop); <-done }()
	f.awaitLog("Self-check found objects that differ", "[ns/a00: kube-apiserver does not have it]")
}

// corruption is a lane that has lost or made up something, and what its client is told.
type corruption struct {
	name  string
	spoil func(f *fan, st *proxytest.Stream)
	first string   // part of the log line that names the objects
	told  []string // what the client gets after that
}

// A lane that differs from kube-apiserver is found within an interval and mended, and its clients
// are told.
func TestSelfCheckDifferent(t *testing.T) {
	// lose hides a change from the lane, which is told that it has seen everything.
	lose := func(change func(f *fan)) func(*fan, *proxytest.Stream) {
		return func(f *fan, st *proxytest.Stream) {
			st.Hold()
			change(f)
			st.Send(proxytest.ConfigMaps.Bookmark(f.up.Bump(1), false))
		}
	}
	for _, c := range []corruption{
		{"object that is not there", func(f *fan, st *proxytest.Stream) {
			rv := f.up.Bump(1)
			st.Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", rv))
		}, "[ns/ghost: kube-apiserver does not have it]", []string{"ADDED ns/ghost 106", "DELETED ns/ghost 106"}},
		{"lost deletion", lose(func(f *fan) { f.cms.Delete("ns", "a2") }),
			"[ns/a2: kube-apiserver does not have it]", []string{"DELETED ns/a2 107"}},
		{"lost object", lose(func(f *fan) { f.cms.Put("ns", "new", "1") }), "[ns/new: missing]", []string{"ERROR 410"}},
		{"lost change", lose(func(f *fan) { f.cms.Put("ns", "a1", "2") }),
			"[ns/a1: at 102, kube-apiserver at 106]", []string{"ERROR 410"}},
		{"lost replacement", lose(func(f *fan) { f.cms.Delete("ns", "a4"); f.cms.Put("ns", "a4", "1") }),
			"[ns/a4: at 105, kube-apiserver at 107]", []string{"ERROR 410"}},
		{"many lost", lose(func(f *fan) {
			for i := range 5 {
				f.cms.Delete("ns", fmt.Sprint("a", i))
			}
		}), "[ns/a0: kube-apiserver does not have it ns/a1: kube-apiserver does not have it", []string{"DELETED ns/a0 111",
			"DELETED ns/a1 111", "DELETED ns/a2 111", "DELETED ns/a3 111", "DELETED ns/a4 111"}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, startChecked(t)) })
	}
}

func (c *corruption) run(t *testing.T, f *fan) {
	for i := range 5 {
		f.cms.Put("ns", fmt.Sprint("a", i), "secret")
	}
	w := f.watch(anyState)
	begun := len(w.Await(6))
	st := f.cms.Reflector()
	f.awaitChecks("equal", 1)
	spoiled := time.Now()
	c.spoil(f, st)
	f.awaitLog("Self-check found objects that differ", "level=ERROR", c.first)
	if took := time.Since(spoiled); took > checkEvery+proxytest.Patience/2 {
		t.Errorf("found after %s", took)
	}
	wantStrings(t, "watch", proxytest.Strings(w.Await(begun + len(c.told))[begun:]), c.told...)
	f.awaitChecks("equal", 1)
	versions, _ := f.listVersions(cmsPath + "?resourceVersion=0")
	if want, _ := f.cms.State(); fmt.Sprint(versions) != fmt.Sprint(want) {
		t.Errorf("after that the cache has %v, want %v", versions, want)
	}
	f.wantAlarms(1, 2) // a second comparison may have begun before the lane was mended
	if l := f.theLane(); l.SelfCheck.Result != "equal" || l.Relists+l.Resets == 0 {
		t.Errorf("got %+v", l)
	}
	if got := f.log.with("secret"); len(got) > 0 {
		t.Errorf("logged what objects contain: %s", got)
	}
}

// A comparison that cannot be made is no alarm, and the next one succeeds.
func TestSelfCheckFailed(t *testing.T) {
	onPage := func(answer func(c *proxytest.Call, token string)) func(*proxytest.Call) {
		return func(c *proxytest.Call) { c.Query.Set("limit", "2"); answer(c, c.Query.Get("continue")) }
	}
	onLater := func(answer func(c *proxytest.Call)) func(*proxytest.Call) {
		return onPage(func(c *proxytest.Call, token string) {
			if token == "" {
				c.Serve()
			} else {
				answer(c)
			}
		})
	}
	cms := proxytest.ConfigMaps
	item := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"ns","resourceVersion":"101","uid":"u"}}`, name)
	}
	body := func(text string) func(c *proxytest.Call) {
		return func(c *proxytest.Call) {
			c.W.Header().Set("Content-Type", "application/json")
			fmt.Fprint(c.W, text)
		}
	}
	for name, test := range map[string]struct {
		answer func(*proxytest.Call)
		err    string
	}{
		"no answer": {func(c *proxytest.Call) { c.Fail(503, "ServiceUnavailable", "busy", 0) }, "503"},
		"compacted": {onLater(func(c *proxytest.Call) {
			c.Fail(http.StatusGone, "Expired", "The provided continue parameter is too old", 0)
		}), "410 Expired"},
		"another resourceVersion": {onLater(body(cms.ListBody("999", "", item("a9")))), "a page is as of 999, the first as of 105"},
		"another order":           {onLater(body(cms.ListBody("105", "", item("a9"), item("a8")))), "not in the order of their keys"},
		"page repeated":           {onLater(body(cms.ListBody("105", "x", item("a0")))), "not in the order of their keys"},
		"empty page":              {onLater(body(cms.ListBody("105", "x"))), "a page is empty, and not the last"},
		"no list":                 {body("secret"), "read list"},
		"half a list":             {body(strings.TrimSuffix(cms.ListBody("105", "", item("a0")), "]}\n")), "read list"},
		"object without a name":   {body(cms.ListBody("105", "", item(""))), "without metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startChecked(t)
			for i := range 5 {
				f.cms.Put("ns", fmt.Sprint("a", i), "1")
			}
			w := f.watch(anyState)
			w.Await(6)
			f.awaitChecks("equal", 1)
			digest := f.theLane().SelfCheck.Digest
			f.up.Forget()
			f.up.On(proxytest.List, 1000, test.answer)
			f.awaitChecks("failed", 1)
			f.awaitLog("Self-check failed", test.err)
			if c := f.theLane().SelfCheck; c.Result != "failed" || c.Digest != digest || c.ResourceVersion != "105" {
				t.Errorf("got %+v, want failed and the last digest", c)
			}
			f.up.Forget()
			f.up.On(proxytest.List, 1000, smallPage)
			f.awaitChecks("equal", 1)
			f.wantAlarms(0, 0)
			if !w.Open() || len(w.Events()) != 6 {
				t.Errorf("the client was told %s", w.Strings())
			}
		})
	}
}

// lanesChecked returns the last comparison of each lane, by its encoding, once all have one.
func (f *fan) lanesChecked(n int) map[string]string {
	f.t.Helper()
	var got map[string]string
	f.until("comparison of each lane", func() bool {
		_, _, body := f.askAdmin("/debug/lanes?format=json", "")
		var d struct{ Lanes []debugLane }
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			f.t.Fatal(err)
		}
		got = make(map[string]string)
		for _, l := range d.Lanes {
			if l.SelfCheck != nil {
				got[l.Resource+" "+l.Encoding] = fmt.Sprintf("%s %s at %s", l.SelfCheck.Result, l.SelfCheck.Digest, l.SelfCheck.ResourceVersion)
			}
		}
		return len(got) == n
	})
	return got
}

// Lanes of one resource are compared with the same list, each by itself. Tables are not compared.
func TestSelfCheckRepresentations(t *testing.T) {
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	f := startChecked(t)
	for i := range 3 {
		f.cms.Put("ns", fmt.Sprint("a", i), "1")
	}
	f.watch(anyState).Await(4)
	whole := f.cms.Reflector()
	proxytest.Open(t, f.insecure+anyState, "Accept", metadata).Await(4)
	f.tables(cmsPath + "?watch=1&resourceVersion=103")
	got := f.lanesChecked(2)
	want := "equal " + digestOf("ns/a0 u1 101", "ns/a1 u2 102", "ns/a2 u3 103") + " at 103"
	for lane, checked := range got {
		if checked != want {
			t.Errorf("%s: got %s, want %s", lane, checked, want)
		}
	}
	f.up.Forget()
	before := len(f.up.Requests(proxytest.List))
	time.Sleep(3 * checkEvery)
	if lists := len(f.up.Requests(proxytest.List)) - before; lists < 2 || lists > 6 {
		t.Errorf("%d lists in three intervals, want one each", lists)
	}
	whole.Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", f.up.Bump(1)))
	f.awaitLog("Self-check found objects that differ", "encoding=json ", "ns/ghost")
	if got := f.log.with("Self-check found", "encoding=json-metadata"); len(got) > 0 {
		t.Errorf("the other lane differs too: %s", got)
	}
}

// A resource without a watch cache, whose stream never says how far it has come, is compared too.
func TestSelfCheckUncached(t *testing.T) {
	f := startChecked(t)
	events := f.up.Collection(proxytest.Events)
	events.Put("ns", "e", "1")
	f.watch("/api/v1/events?watch=1&resourceVersion=0").Await(1)
	f.up.Bump(5)
	if got, want := f.lanesChecked(1)["events json"], "equal "+digestOf("ns/e u1 101")+" at 106"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// With an interval of 0 nothing is compared.
func TestSelfCheckOff(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.AdminPort, o.SelfCheck.SelfCheckInterval = proxy.AnyPort, 0 })
	f.watch(anyState).Await(1)
	time.Sleep(2 * checkEvery)
	if n := f.up.Count(proxytest.List); n != 0 || f.theLane().SelfCheckDue != nil {
		t.Errorf("%d lists, the next check at %v", n, f.theLane().SelfCheckDue)
	}
}

// digests returns the answer of /debug/digests.
func (f *fan) digests(query string) (code int, text string) {
	f.t.Helper()
	code, _, text = f.askAdmin("/debug/digests"+query, "")
	return code, strings.TrimSpace(text)
}

// /debug/digests shows the digests of a resource's lanes at any resourceVersion within the history.
// They are the same at two replicas.
func TestDebugDigests(t *testing.T) {
	t.Parallel()
	up := proxytest.NewServer(t)
	withAdmin := func(o *proxy.Options) { o.AdminPort = proxy.AnyPort }
	f, other := startFan(t, up, withAdmin), startFan(t, up, withAdmin)
	f.cms.Put("ns", "a", "1")
	f.cms.Put("ns", "b", "1")
	watches := []*proxytest.Watcher{f.watch(anyState), other.watch(anyState)}
	proxytest.Open(t, f.insecure+anyState, "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Await(3)
	for _, w := range watches {
		w.Await(3)
	}
	rv := f.cms.Put("ns", "a", "2")
	f.cms.Delete("ns", "b")
	for _, w := range watches {
		w.AwaitVersion(rv + 1)
	}
	f.until("both lanes", func() bool { // the lane of metadata has no watcher to wait for
		_, text := f.digests("?resource=v1/configmaps")
		return strings.Count(text, `"resourceVersion":"104"`) == 2
	})
	answer := func(rv string, objects int, digest string, encodings ...string) string {
		var lanes []string
		for _, e := range encodings {
			lanes = append(lanes, fmt.Sprintf(`{"encoding":%q,"resourceVersion":%q,"digest":%q,"objects":%d}`, e, rv, digest, objects))
		}
		return `{"resource":"v1/configmaps","lanes":[` + strings.Join(lanes, ",") + `]}`
	}
	failure := func(rv, err string) string {
		return fmt.Sprintf(`{"resource":"v1/configmaps","lanes":[{"encoding":"json","resourceVersion":%q,"objects":0,"error":%q}]}`, rv, err)
	}
	now, before := digestOf("ns/a u1 103"), digestOf("ns/a u1 101", "ns/b u2 102")
	both := []string{"json", "json-metadata-v1"}
	for _, c := range []struct {
		f     *fan
		query string
		code  int
		want  string
	}{
		{f, "?resource=v1/configmaps", 200, answer("104", 1, now, both...)},
		{f, "?resource=v1/configmaps&resourceVersion=102", 200, answer("102", 2, before, both...)},
		{other, "?resource=v1/configmaps&resourceVersion=104", 200, answer("104", 1, now, "json")},
		{other, "?resource=v1/configmaps&resourceVersion=102", 200, answer("102", 2, before, "json")},
		{other, "?resource=v1/configmaps&resourceVersion=101", 200, failure("101", "the history does not reach back to it")},
		{other, "?resource=v1/configmaps&resourceVersion=999", 200, failure("999", "the cache has not reached it")},
		{f, "?resource=v1/pods", 404, `no cache of "v1/pods" is filled: see /debug/lanes`},
		{f, "", 400, "resource is missing: give v1/pods or apps/v1/deployments"},
		{f, "?resource=v1/pods&resourceVersion=x", 400, `resourceVersion="x": give a positive number`},
		{f, "?resource=v1/pods&resourceVersion=0", 400, `resourceVersion="0": give a positive number`},
		{f, "?namespace=ns", 400, `parameter "namespace" is unknown: give any of resource, resourceVersion`},
	} {
		if code, text := c.f.digests(c.query); code != c.code || text != c.want {
			t.Errorf("%s: got %d %s\nwant %d %s", c.query, code, text, c.code, c.want)
		}
	}
}

// listVersions lists a collection and returns the objects' versions and the list's.
func (f *fan) listVersions(path string) (versions map[string]uint64, rv uint64) {
	_, body := f.get(path)
	var list struct {
		Metadata metav1.ListMeta
		Items    []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		f.t.Errorf("%v: %.200s", err, body)
	}
	versions = make(map[string]uint64)
	for _, o := range list.Items {
		versions[o.Namespace+"/"+o.Name], _ = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	rv, _ = strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	return versions, rv
}
