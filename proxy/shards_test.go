package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// halves are the shardSelectors of the two halves of a collection.
var halves = [2]string{"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"}

// sharded returns a path with a shardSelector. The path has a query.
func sharded(path, selector string) string {
	return path + "&shardSelector=" + url.QueryEscape(selector)
}

// uids returns the uids of a list's items by their keys.
func uids(t *testing.T, body string) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID string }
		}
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	found := make(map[string]string)
	for _, item := range list.Items {
		found[item.Metadata.Namespace+"/"+item.Metadata.Name] = item.Metadata.UID
	}
	return found
}

// Lists and watches of two halves have each object in one of them. An upstream that ignores
// shardSelector is not asked.
func TestShards(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	const objects = 40
	for i := range objects {
		f.cms.Put("ns", fmt.Sprintf("o%02d", i), "1")
	}
	f.watch(anyState).Await(objects + 1)
	_, body := f.get(cmsPath + "?resourceVersion=0")
	all := uids(t, body)
	var watches [2]*proxytest.Watcher
	var hashes []string
	for _, uid := range all {
		hashes = append(hashes, sharding.HashField(uid))
	}
	slices.Sort(hashes)
	middle := hashes[objects/2] // the uids are alike, and so are their hashes
	want := [2]map[string]string{{}, {}}
	for key, uid := range all {
		n := 0
		if sharding.HashField(uid) >= middle {
			n = 1
		}
		want[n][key] = uid
	}
	for i, half := range halves {
		half = strings.Replace(half, "8000000000000000", middle, 1)
		for _, path := range []string{cmsPath + "?resourceVersion=0", cmsPath + "?limit=100",
			"/api/v1/namespaces/ns/configmaps?resourceVersion=0"} {
			resp, body := f.get(sharded(path, half))
			if got := uids(t, body); resp.StatusCode != http.StatusOK || !maps.Equal(got, want[i]) || len(got) == 0 {
				t.Errorf("%s of half %d: %s, got %v, want %v", path, i, resp.Status, got, want[i])
			}
			if !strings.Contains(body, `"shardInfo":{"selector":"`+half+`"}`) {
				t.Errorf("%s of half %d does not say so: %.300s", path, i, body)
			}
		}
		watches[i] = f.watch("%s", sharded(anyState, half))
		if got := len(watches[i].Await(len(want[i]) + 1)); got != len(want[i])+1 {
			t.Errorf("half %d begins with %d events, want %d and the bookmark", i, got, len(want[i]))
		}
	}
	for i := range objects {
		f.cms.Put("ns", fmt.Sprintf("o%02d", i), "2")
	}
	f.cms.Delete("ns", "o00")
	for i, w := range watches {
		changes := len(want[i])
		if _, mine := want[i]["ns/o00"]; mine {
			changes++
		}
		for _, e := range w.Await(len(want[i]) + 1 + changes)[len(want[i])+1:] {
			if _, mine := want[i][e.Key]; !mine {
				t.Errorf("half %d got %s", i, e)
			}
		}
	}
	f.passed(0)
}

// A shardSelector that is not understood is passed through only to a kube-apiserver that does not
// ignore it.
func TestShardMalformed(t *testing.T) {
	t.Parallel()
	for name, served := range map[string]bool{"ignored": false, "served": true} {
		t.Run(name, func(t *testing.T) {
			f := startFan(t, proxytest.NewServer(t))
			if served {
				f.up.On(proxytest.Form, 1<<20, func(c *proxytest.Call) {
					if c.R.URL.Path == "/api/v1/namespaces" {
						c.Write(`{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1",` +
							`"shardInfo":{"selector":"` + c.Query.Get("shardSelector") + `"}},"items":[]}`)
						return
					}
					c.Serve()
				})
			}
			f.cms.Put("ns", "a", "1")
			f.watch(anyState).Await(2)
			for i, path := range []string{cmsPath + "?resourceVersion=0", cmsPath + "?limit=1",
				cmsPath + "?watch=1&timeoutSeconds=1"} {
				resp, body := f.get(sharded(path, " "))
				if served {
					f.passed(i + 1)
					continue
				}
				const want = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"invalid shard ` +
					`selector: empty shard selector is not allowed; omit the parameter for unfiltered lists","code":500}` + "\n"
				if resp.StatusCode != http.StatusInternalServerError || body != want {
					t.Errorf("%s: %s, %s", path, resp.Status, body)
				}
				f.passed(0)
			}
		})
	}
}

// A read with a shardSelector that the lane can't answer does not pass through to a kube-apiserver
// that would answer with everything.
func TestShardWithheld(t *testing.T) {
	t.Parallel()
	t.Run("filling", func(t *testing.T) {
		f := coldFan(t)
		before := f.up.Count(proxytest.Client)
		f.up.On(proxytest.WatchList, 1<<20, (*proxytest.Call).Hang)
		for _, path := range []string{cmsPath + "?resourceVersion=0&timeout=4s", cmsPath + "?watch=1&timeoutSeconds=4"} {
			resp, body := f.get(sharded(path, halves[0]))
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
				!strings.Contains(body, "by hash ranges") {
				t.Errorf("%s: %s, %s", path, resp.Status, body)
			}
		}
		f.passed(before)
	})
	t.Run("discovery", func(t *testing.T) {
		f := startFan(t, proxytest.NewServer(t))
		f.cms.Put("ns", "a", "1")
		f.up.On(proxytest.Other, 1<<20, func(c *proxytest.Call) {
			if c.R.URL.Path == "/api/v1" {
				c.Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "no", 0)
				return
			}
			c.Serve()
		})
		for _, path := range []string{cmsPath + "?resourceVersion=0", cmsPath + "?watch=1&timeoutSeconds=4"} {
			resp, body := f.get(sharded(path, halves[0]))
			if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "by hash ranges") {
				t.Errorf("%s: %s, %s", path, resp.Status, body)
			}
			f.passed(0)
		}
		f = startFan(t, proxytest.NewServer(t))
		f.get(sharded("/api/v1/unknown?resourceVersion=0", halves[0])) // discovery says that there is none
		f.passed(1)
	})
	t.Run("history", func(t *testing.T) {
		f := startFan(t, proxytest.NewServer(t))
		older(f)
		newest := f.cms.Put("ns", "z", "1")
		f.up.On(proxytest.Form, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "compacted", 0) })
		// It is not known whether a and b had the label at 102; see TestBackfillUndecidable.
		w := f.watch("%s", sharded(fmt.Sprintf(since, 102)+"&labelSelector=app", halves[0]))
		if got := w.Await(1)[0]; got.Code != http.StatusGone || w.Ended() != nil {
			t.Errorf("got %s, %v", got, w.Ended())
		}
		resp, body := f.get(sharded(cmsPath+"?resourceVersion=90&resourceVersionMatch=Exact", halves[0]))
		if resp.StatusCode != http.StatusGone || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("%s, %s", resp.Status, body)
		}
		f.passed(0)
		_, body = f.get(sharded(fmt.Sprintf("%s?resourceVersion=%d", cmsPath, newest), halves[0]+"||"+halves[1]))
		if keys := slices.Sorted(maps.Keys(uids(t, body))); len(keys) != 3 {
			t.Errorf("both halves have %v", keys)
		}
	})
}
