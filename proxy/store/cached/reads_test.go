package cached_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// large is the data of an object that costs kube-apiserver more than the proof that a cache is
// current, and whose list is compressed.
var large = strings.Repeat("x", 300<<10)

// notOlder asks for a state that kube-apiserver also divides into pages from its cache.
const notOlder = "&resourceVersion=100&resourceVersionMatch=NotOlderThan"

// unzipped returns what a body in gzip holds.
func unzipped(t *testing.T, body string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// Answers of more than 128 KiB are compressed for clients that accept gzip.
func TestListGzip(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		w := p.Watch(bubble.AnyState)
		p.CMs.Put("ns", "a", "")
		empty := len(p.Direct(bubble.CMs))
		for size, compressed := range map[int]bool{128 << 10: false, 128<<10 + 1: true, 1 << 20: true} {
			w.AwaitVersion(p.CMs.Put("ns", "a", strings.Repeat("x", size-empty)))
			want := p.Direct(bubble.CMs)
			if len(want) != size {
				t.Fatalf("made a list of %d bytes, want %d", len(want), size)
			}
			for _, accept := range []string{"br, gzip", "", "gzip;q=1.0", "deflate", "identity"} {
				resp, body := p.Get(bubble.CMs+"?resourceVersion=0", "Accept-Encoding", accept)
				encoding, vary := "", ""
				if compressed && accept == "br, gzip" {
					encoding, vary, body = "gzip", "Accept-Encoding", unzipped(t, body)
				}
				if h := resp.Header; h.Get("Content-Encoding") != encoding || h.Get("Vary") != vary || body != want {
					t.Errorf("%d bytes, Accept-Encoding %q: got %v, want %q, or another body", size, accept, h, encoding)
				}
			}
		}
		p.Passed(0)
	})
}

// listMeta is what the tests read of a list.
type listMeta struct {
	Metadata struct {
		ResourceVersion    string
		Continue           string
		RemainingItemCount int
	}
	Items []any
}

// Continue tokens have kube-apiserver's form, and remainingItemCount is exact (contract 2.5).
func TestListPages(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		w := p.Watch(bubble.AnyState)
		for _, name := range []string{"a", "b", "c", "d"} {
			p.CMs.Put("ns", name, strings.Repeat("x", 129<<10), "app", name) // a page of one is compressed
		}
		w.AwaitVersion(p.CMs.Put("z", "e", "1"))
		const inNS = "/api/v1/namespaces/ns/configmaps"
		for _, test := range []struct {
			path      string
			items     int
			start     string // where the next page begins
			remaining int
		}{
			{bubble.CMs + "?limit=2&resourceVersion=0", 5, "", 0}, // limit is ignored
			{bubble.CMs + "?limit=2" + notOlder, 2, "/ns/b\x00", 3},
			{bubble.CMs + "?limit=4" + notOlder, 4, "/ns/d\x00", 1},
			{bubble.CMs + "?limit=5" + notOlder, 5, "", 0},
			{bubble.CMs + "?limit=9" + notOlder, 5, "", 0},
			{inNS + "?limit=4" + notOlder, 4, "", 0},
			{inNS + "?limit=1&labelSelector=app" + notOlder, 1, "/a\x00", 0},
			// There is a token if more keys follow, even if none of them matches.
			{inNS + "?limit=1&labelSelector=app%3Dc" + notOlder, 1, "/c\x00", 0},
			{inNS + "?limit=1&fieldSelector=metadata.name%3Dc" + notOlder, 1, "", 0},
			// These two have the same items, but only a list without a selector says how many remain.
			{bubble.CMs + "?fieldSelector=metadata.namespace%3Dns&limit=2" + notOlder, 2, "/ns/b\x00", 0},
			{inNS + "?limit=2" + notOlder, 2, "/b\x00", 2},
			// Selectors without requirements are none.
			{inNS + "?limit=2&labelSelector=%20&fieldSelector=," + notOlder, 2, "/b\x00", 2},
		} {
			for range 2 { // the second one shares the compressed items of the first
				_, body := p.Get(test.path, "Accept-Encoding", "gzip")
				var list listMeta
				if err := json.Unmarshal([]byte(unzipped(t, body)), &list); err != nil {
					t.Fatalf("%v: %.300s", err, body)
				}
				token, err := base64.RawURLEncoding.DecodeString(list.Metadata.Continue)
				if err != nil {
					t.Fatal(err)
				}
				want := ""
				if test.start != "" {
					start, _ := json.Marshal(test.start)
					want = `{"v":"meta.k8s.io/v1","rv":105,"start":` + string(start) + `}`
				}
				if m := list.Metadata; len(list.Items) != test.items || string(token) != want ||
					m.RemainingItemCount != test.remaining || m.ResourceVersion != "105" {
					t.Errorf("%s: %d items, token %q, %d remaining, want %d, %q, %d", test.path, len(list.Items), token,
						m.RemainingItemCount, test.items, want, test.remaining)
				}
			}
		}
		p.Passed(0)
	})
}

// A limit makes the list of one name no exact one: kube-apiserver reads its key as it is now.
func TestListOfOneIsCurrent(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		w := p.Watch(bubble.AnyState)
		old := p.CMs.Put("ns", "a", "1")
		now := p.CMs.Put("ns", "a", "2")
		w.AwaitVersion(now)
		shows := func(rv uint64, query string, passed int) {
			t.Helper()
			query = fmt.Sprintf("/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%%3Da&resourceVersion=%d%s", old, query)
			if _, body := p.Get(query); !strings.Contains(body, fmt.Sprintf(`"metadata":{"resourceVersion":"%d"},"items":[{`, rv)) {
				t.Errorf("%s: want the state as of %d, got %.200s", query, rv, body)
			}
			p.Passed(passed)
		}
		shows(now, "", 0)
		shows(old, "&resourceVersionMatch=Exact", 0)
		shows(old, "&resourceVersionMatch=Exact&limit=1", 0)
		shows(now, "&limit=1", 1)
	})
}

// Without a watch cache, kube-apiserver divides a list into pages from resourceVersion 0 too.
func TestListPagesUncached(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		path := proxytest.Events.Path() + "?limit=1&resourceVersion=0"
		p.Up.Collection(proxytest.Events).Put("ns", "a", "1")
		p.Up.Collection(proxytest.Events).Put("ns", "b", "1")
		read := func(body string) (list listMeta) {
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatalf("%v: %.300s", err, body)
			}
			return list
		}
		if list := read(p.Direct(path)); len(list.Items) != 1 || list.Metadata.Continue == "" {
			t.Fatalf("kube-apiserver's page has %d items, token %q", len(list.Items), list.Metadata.Continue)
		}
		_, body := p.Get(path)
		first := read(body)
		if m := first.Metadata; len(first.Items) != 1 || m.Continue == "" || m.RemainingItemCount != 1 {
			t.Errorf("%d items, token %q, %d remaining, want one, a token and one", len(first.Items), m.Continue, m.RemainingItemCount)
		}
		_, body = p.Get(path + "&continue=" + first.Metadata.Continue)
		if second := read(body); len(second.Items) != 1 || second.Metadata.Continue != "" {
			t.Errorf("second page: %d items, token %q", len(second.Items), second.Metadata.Continue)
		}
		p.Passed(0)
	})
}

// A get has the bytes of the object, or says that there is none as kube-apiserver does.
func TestGet(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Watch(bubble.AnyState).AwaitVersion(p.CMs.Put("ns", "a", "1"))
		for name, want := range map[string]string{
			"a": `200 {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"101","uid":"u1"},"data":{"v":"1"}}`,
			"nope": `404 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"nope\" not found",` +
				`"reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404}`,
		} {
			resp, body := p.Get("/api/v1/namespaces/ns/configmaps/" + name + "?resourceVersion=0")
			if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != want+"\n" {
				t.Errorf("%s: got\n%s, want\n%s", name, got, want)
			}
		}
		p.Passed(0)
	})
}

// An answer from the cache says up to which resourceVersion the cache has all changes, and how long ago
// kube-apiserver has last said so. One that passes through says nothing of that.
func TestStateOfCache(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		says := func(target, want string) {
			t.Helper()
			resp, _ := p.Get(target)
			if got := fmt.Sprint(resp.StatusCode, resp.Header["Age"], resp.Header["X-Kubernetes-Resource-Version"]); got != want {
				t.Errorf("%s: %s, want %s", target, got, want)
			}
		}
		const get = "/api/v1/namespaces/ns/configmaps/a?resourceVersion=0"
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.AwaitVersion(p.CMs.Put("ns", "b", "1"))
		time.Sleep(90 * time.Second)
		says(get, "200 [90] [102]")
		says(bubble.CMs+"?resourceVersion=0", "200 [90] [102]")
		w.AwaitVersion(p.CMs.Put("ns", "b", "2"))
		says(get, "200 [0] [103]")
		says(bubble.CMs+"?resourceVersion=0&pretty=1", "200 [] []")
	})
}

// A list from a resourceVersion that the cache has not reached waits for a proof, and so does a
// consistent list. Lists that the cache cannot answer pass through.
func TestListFresh(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Watch(bubble.AnyState).AwaitVersion(p.CMs.Put("ns", "a", large))
		shows := func(query string, rv uint64) {
			t.Helper()
			if _, body := p.Get(bubble.CMs + query); !strings.Contains(body, fmt.Sprintf(`"resourceVersion":"%d"},"items":[{`, rv)) {
				t.Errorf("%s: got %.200s", query, body)
			}
		}
		rv := p.Up.Bump(5)
		shows(fmt.Sprint("?resourceVersion=", rv), rv)
		now := p.Up.Bump(5)
		shows("", now)
		shows("?limit=5", now)
		shows(fmt.Sprintf("?resourceVersion=%d&limit=5", rv), rv)
		shows("?resourceVersion=101&resourceVersionMatch=Exact", 101)
		p.Passed(0)
		for i, query := range []string{"?resourceVersion=0&pretty=1", "?resourceVersion=0&continue=x", "?resourceVersion=9999"} {
			if resp, _ := p.Get(bubble.CMs + query); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", query, resp.Status)
			}
			p.Passed(i + 1)
		}
	}, bubble.Impatient, func(o *proxy.Options) { o.Lane.Tuning.SpareLists = true })
}
