package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// ask sends a GET directly to the upstream.
func (f *fan) ask(path string) string {
	f.t.Helper()
	resp, err := http.Get(f.up.URL + path)
	if err != nil {
		f.t.Fatal(err)
	}
	return bodyOf(f.t, resp)
}

// A list from the cache has the same bytes as upstream's list.
func TestListBytes(t *testing.T) {
	for _, r := range []proxytest.Resource{proxytest.ConfigMaps, proxytest.Foos} {
		t.Run(r.Name, func(t *testing.T) {
			f := startFan(t, proxytest.NewServer(t))
			c := f.up.Collection(r)
			path := r.Path()
			_, body := f.get(path + "?resourceVersion=0")
			if want := f.ask(path); body != want {
				t.Errorf("empty: got %q, want %q", body, want)
			}
			w := f.watch("%s", path+"?watch=1&resourceVersion=0")
			for _, ns := range []string{"a", "a-b", "b"} {
				for _, name := range []string{"x", "y", "x.1"} {
					c.Put(ns, name, "é<&>\u2028\"\\", "app", name)
				}
			}
			c.Put("a", "x", "changed")
			w.AwaitVersion(c.Delete("b", "y"))
			for _, path := range []string{path, strings.Replace(path, r.Name, "namespaces/a/"+r.Name, 1)} {
				resp, body := f.get(path + "?resourceVersion=0")
				if want := f.ask(path); body != want {
					t.Errorf("%s: got\n%s, want\n%s", path, body, want)
				}
				got := fmt.Sprint(resp.Header["Content-Type"], resp.Header["Cache-Control"],
					resp.ContentLength == int64(len(body)), resp.Header["Vary"])
				if got != "[application/json] [no-cache, private] true []" {
					t.Errorf("header %s", got)
				}
			}
			_, body = f.get(path + "?resourceVersion=0&labelSelector=app%3Dy&fieldSelector=metadata.namespace%3Da")
			if n := strings.Count(body, `"name":"`); n != 1 || !strings.Contains(body, `"name":"y","namespace":"a"`) {
				t.Errorf("with selectors: got %s", body)
			}
			f.passed(0)
		})
	}
}

// "responses of more than 128 KiB are compressed, at level 1".
func TestListGzip(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	f.cms.Put("ns", "a", "")
	empty := len(f.ask(cmsPath))
	for size, compressed := range map[int]bool{131072: false, 131073: true, 1 << 20: true} {
		w.AwaitVersion(f.cms.Put("ns", "a", strings.Repeat("x", size-empty)))
		want := f.ask(cmsPath)
		if len(want) != size {
			t.Fatalf("made a list of %d bytes, want %d", len(want), size)
		}
		resp, body := f.get(cmsPath+"?resourceVersion=0", "Accept-Encoding", "br, gzip")
		encoding := ""
		if compressed {
			encoding = "gzip"
			z, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			body = string(plain)
			if vary := resp.Header.Get("Vary"); vary != "Accept-Encoding" {
				t.Errorf("Vary: %q", vary)
			}
		}
		if got := resp.Header.Get("Content-Encoding"); got != encoding || body != want {
			t.Errorf("%d bytes: Content-Encoding %q, want %q, or another body", size, got, encoding)
		}
		for _, accept := range []string{"", "gzip;q=1.0", "deflate", "identity"} {
			resp, body := f.get(cmsPath+"?resourceVersion=0", "Accept-Encoding", accept)
			if resp.Header.Get("Content-Encoding") != "" || body != want {
				t.Errorf("Accept-Encoding %q: got Content-Encoding %q", accept, resp.Header.Get("Content-Encoding"))
			}
		}
	}
	f.passed(0)
}

// Pages (contract 2.5): the continue token has kube-apiserver's form, and remainingItemCount is
// exact.
func TestListPages(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	for _, name := range []string{"a", "b", "c", "d"} {
		f.cms.Put("ns", name, "1", "app", name)
	}
	w.AwaitVersion(f.cms.Put("z", "e", "1"))
	const inNS = "/api/v1/namespaces/ns/configmaps"
	for _, test := range []struct {
		path      string
		items     int
		start     string // where the next page begins
		remaining int
	}{
		{cmsPath + "?limit=2&resourceVersion=0", 5, "", 0}, // limit is ignored
		{cmsPath + "?limit=2&resourceVersion=100&resourceVersionMatch=NotOlderThan", 2, "/ns/b\x00", 3},
		{cmsPath + "?limit=4&resourceVersion=100&resourceVersionMatch=NotOlderThan", 4, "/ns/d\x00", 1},
		{cmsPath + "?limit=5&resourceVersion=100&resourceVersionMatch=NotOlderThan", 5, "", 0},
		{cmsPath + "?limit=9&resourceVersion=100&resourceVersionMatch=NotOlderThan", 5, "", 0},
		{inNS + "?limit=2&resourceVersion=100&resourceVersionMatch=NotOlderThan", 2, "/b\x00", 2},
		{inNS + "?limit=4&resourceVersion=100&resourceVersionMatch=NotOlderThan", 4, "", 0},
		{inNS + "?limit=1&labelSelector=app&resourceVersion=100&resourceVersionMatch=NotOlderThan", 1, "/a\x00", 0},
		// There is a token if more keys follow, even if none of them matches.
		{inNS + "?limit=1&labelSelector=app%3Dc&resourceVersion=100&resourceVersionMatch=NotOlderThan", 1, "/c\x00", 0},
		{inNS + "?limit=1&fieldSelector=metadata.name%3Dc&resourceVersion=100&resourceVersionMatch=NotOlderThan",
			1, "", 0},
	} {
		_, body := f.get(test.path)
		var list struct {
			Metadata struct {
				ResourceVersion    string
				Continue           string
				RemainingItemCount *int
			}
			Items []any
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%v: %s", err, body)
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
		remaining := 0
		if list.Metadata.RemainingItemCount != nil {
			remaining = *list.Metadata.RemainingItemCount
		}
		if len(list.Items) != test.items || string(token) != want || remaining != test.remaining ||
			list.Metadata.ResourceVersion != "105" {
			t.Errorf("%s: %d items, token %q, %d remaining, want %d, %q, %d\n%s", test.path, len(list.Items), token,
				remaining, test.items, want, test.remaining, body)
		}
	}
	f.passed(0)
}

// A field selector for a namespace selects what a list within the namespace has, and the two share
// compressed items. But only the list without a selector says how many items remain.
func TestListPagesShared(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	var rv uint64
	for _, name := range []string{"a", "b", "c", "d"} {
		rv = f.cms.Put("ns", name, large)
	}
	w.AwaitVersion(rv)
	const page = "limit=1&resourceVersion=100&resourceVersionMatch=NotOlderThan"
	const selected, within = cmsPath + "?fieldSelector=metadata.namespace%3Dns&" + page, "/api/v1/namespaces/ns/configmaps?" + page
	for _, path := range []string{selected, within, selected, within} {
		_, body := f.get(path, "Accept-Encoding", "gzip")
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Metadata struct{ RemainingItemCount int }
		}
		if err := json.NewDecoder(z).Decode(&list); err != nil {
			t.Fatal(err)
		}
		want := 0
		if path == within {
			want = 3
		}
		if got := list.Metadata.RemainingItemCount; got != want {
			t.Errorf("%s: %d remaining, want %d", path, got, want)
		}
	}
	f.passed(0)
}

func TestGet(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	w.AwaitVersion(f.cms.Put("ns", "a", "1"))
	f.watch("%s", proxytest.Foos.Path()+"?watch=1&resourceVersion=0")
	for path, want := range map[string]string{
		"/api/v1/namespaces/ns/configmaps/a": `200 {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",` +
			`"namespace":"ns","resourceVersion":"101","uid":"u1"},"data":{"v":"1"}}` + "\n",
		"/api/v1/namespaces/ns/configmaps/nope": `404 {"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure","message":"configmaps \"nope\" not found",` +
			`"reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404}` + "\n",
		"/apis/ex.io/v1/namespaces/ns/foos/nope": `404 {"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure","message":"foos.ex.io \"nope\" not found",` +
			`"reason":"NotFound","details":{"name":"nope","group":"ex.io","kind":"foos"},"code":404}` + "\n",
	} {
		resp, body := f.get(path + "?resourceVersion=0")
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != want {
			t.Errorf("%s: got\n%s, want\n%s", path, got, want)
		}
	}
	f.passed(0)
}

// A list from a resourceVersion that the cache has not reached waits for a proof, and so does a
// consistent list. Lists that the cache cannot answer pass through.
func TestListFresh(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), impatient, proxy.SpareLists)
	w := f.watch(anyState)
	w.AwaitVersion(f.cms.Put("ns", "a", large))
	rv := f.up.Bump(5)
	_, body := f.get(fmt.Sprintf("%s?resourceVersion=%d", cmsPath, rv))
	if !strings.Contains(body, `"resourceVersion":"106"},"items":[{`) {
		t.Errorf("got %.200s", body)
	}
	f.up.Bump(5)
	for query, want := range map[string]int{"": 111, "?limit=5": 111, "?resourceVersion=106&limit=5": 106,
		"?resourceVersion=101&resourceVersionMatch=Exact": 101} {
		_, body := f.get(cmsPath + query)
		if !strings.Contains(body, fmt.Sprintf(`"resourceVersion":"%d"},"items":[{`, want)) {
			t.Errorf("%s: got %.200s", query, body)
		}
	}
	f.passed(0)
	for i, query := range []string{"?resourceVersion=0&pretty=1", "?resourceVersion=0&continue=x",
		"?resourceVersion=9999"} {
		f.get(cmsPath + query)
		f.passed(i + 1)
	}
}

// A client that leaves in the middle of a list does not affect others.
func TestListSlowClient(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	w.AwaitVersion(f.cms.Put("ns", "a", strings.Repeat("x", 8<<20)))
	for range 3 {
		c := (&front{t: t, insecure: strings.TrimPrefix(f.insecure, "http://")}).dial()
		c.send("GET " + cmsPath + "?resourceVersion=0 HTTP/1.1\nHost: localhost\nAccept-Encoding: gzip\n\n")
		c.send("GET " + cmsPath + "?resourceVersion=0 HTTP/1.1\nHost: localhost\n\n")
		if _, err := io.ReadFull(c.r, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	want := []byte(f.ask(cmsPath))
	for range 3 {
		if _, body := f.get(cmsPath + "?resourceVersion=0"); !bytes.Equal([]byte(body), want) {
			t.Errorf("got %d bytes, want %d", len(body), len(want))
		}
	}
	f.passed(0)
}
