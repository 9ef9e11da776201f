package cached_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
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
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		const objects = 40
		for i := range objects {
			p.CMs.Put("ns", fmt.Sprintf("o%02d", i), "1")
		}
		p.Watch(bubble.AnyState).Await(objects + 1)
		_, body := p.Get(bubble.CMs + "?resourceVersion=0")
		all := uids(t, body)
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
		var watches [2]*proxytest.Watcher
		for i, half := range halves {
			half = strings.Replace(half, "8000000000000000", middle, 1)
			for _, path := range []string{bubble.CMs + "?resourceVersion=0", bubble.CMs + "?limit=100",
				"/api/v1/namespaces/ns/configmaps?resourceVersion=0"} {
				resp, body := p.Get(sharded(path, half))
				if got := uids(t, body); resp.StatusCode != http.StatusOK || !maps.Equal(got, want[i]) || len(got) == 0 {
					t.Errorf("%s of half %d: %s, got %v, want %v", path, i, resp.Status, got, want[i])
				}
				if !strings.Contains(body, `"shardInfo":{"selector":"`+half+`"}`) {
					t.Errorf("%s of half %d does not say so: %.300s", path, i, body)
				}
			}
			watches[i] = p.Watch("%s", sharded(bubble.AnyState, half))
		}
		for i := range objects {
			p.CMs.Put("ns", fmt.Sprintf("o%02d", i), "2")
		}
		p.CMs.Delete("ns", "o00")
		synctest.Wait()
		for i, w := range watches {
			events := len(want[i])*2 + 1 // the bookmark
			if _, mine := want[i]["ns/o00"]; mine {
				events++
			}
			if got := w.Events(); len(got) != events {
				t.Errorf("half %d has %d events, want %d", i, len(got), events)
			}
			for _, e := range w.Events() {
				if _, mine := want[i][e.Key]; !mine && !e.End {
					t.Errorf("half %d got %s", i, e)
				}
			}
		}
		p.Passed(0)
	})
}

// A page of a shard does not say how many items remain, also where the shard is the whole: what follows is not
// counted by shards. That of the whole collection says it.
func TestShardPages(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		for _, name := range []string{"a", "b", "c"} {
			p.CMs.Put("ns", name, "1")
		}
		p.Watch(bubble.AnyState).Await(4)
		const page = bubble.CMs + "?limit=1" + notOlder
		for target, remaining := range map[string]int{page: 2, sharded(page, halves[0]+"||"+halves[1]): 0} {
			_, body := p.Get(target)
			var list listMeta
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if m := list.Metadata; len(list.Items) != 1 || m.Continue == "" || m.RemainingItemCount != remaining {
				t.Errorf("%s: %s, want %d remaining", target, body, remaining)
			}
		}
		p.Passed(0)
	})
}

// A shardSelector that is not understood is passed through only to a kube-apiserver that does not
// ignore it.
func TestShardMalformed(t *testing.T) {
	for name, served := range map[string]bool{"ignored": false, "served": true} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			if served {
				p.Up.On(proxytest.Form, 1<<20, func(c *proxytest.Call) {
					if c.R.URL.Path == "/api/v1/namespaces" {
						c.Write(`{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1",` +
							`"shardInfo":{"selector":"` + c.Query.Get("shardSelector") + `"}},"items":[]}`)
						return
					}
					c.Serve()
				})
			}
			p.CMs.Put("ns", "a", "1")
			p.Watch(bubble.AnyState).Await(2)
			for i, path := range []string{bubble.CMs + "?resourceVersion=0", bubble.CMs + "?limit=1",
				bubble.CMs + "?watch=1"} {
				resp, body := p.Get(sharded(path, " "))
				if served {
					p.Passed(i + 1)
					continue
				}
				const want = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"invalid shard ` +
					`selector: empty shard selector is not allowed; omit the parameter for unfiltered lists","code":500}` + "\n"
				if resp.StatusCode != http.StatusInternalServerError || body != want {
					t.Errorf("%s: %s, %s", path, resp.Status, body)
				}
				p.Passed(0)
			}
		})
	}
}

// A read with a shardSelector that the lane can't answer does not pass through to a kube-apiserver
// that would answer with everything.
func TestShardWithheld(t *testing.T) {
	withheld := func(p *bubble.Proxy) {
		for _, path := range []string{bubble.CMs + "?resourceVersion=0&timeout=4s", bubble.CMs + "?watch=1"} {
			resp, body := p.Get(sharded(path, halves[0]))
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
				!strings.Contains(body, "by hash ranges") {
				p.T.Errorf("%s: %s, %s", path, resp.Status, body)
			}
		}
		p.Passed(0)
	}
	bubble.Row(t, "filling", func(t *testing.T, p *bubble.Proxy) {
		p.Get(proxytest.Events.Path() + "?resourceVersion=0") // learns which resources exist
		p.Up.On(proxytest.WatchList, 1<<20, (*proxytest.Call).Hang)
		withheld(p)
	})
	bubble.Row(t, "discovery", func(t *testing.T, p *bubble.Proxy) {
		p.Up.On(proxytest.Other, 1<<20, func(c *proxytest.Call) {
			if c.R.URL.Path == "/api/v1" {
				c.Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "no", 0)
				return
			}
			c.Serve()
		})
		withheld(p)
	})
	bubble.Row(t, "no such resource", func(t *testing.T, p *bubble.Proxy) {
		p.Get(sharded("/api/v1/unknown?resourceVersion=0", halves[0]))
		p.Passed(1)
	})
	// Nothing proves that a cache of events is current, and no history is fetched of them.
	bubble.Row(t, "events", func(t *testing.T, p *bubble.Proxy) {
		events := p.Up.Collection(proxytest.Events)
		for _, name := range []string{"a", "b", "c", "d"} {
			events.Put("ns", name, "1")
		}
		path := proxytest.Events.Path()
		resp, body := p.Get(sharded(path+"?resourceVersion=0", halves[0]))
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "shardInfo") {
			t.Errorf("%s, %s", resp.Status, body)
		}
		w := p.Watch("%s", sharded(path+"?watch=1&resourceVersion=100", halves[0]))
		if got := w.Await(1)[0]; got.Code != http.StatusGone || w.Ended() != nil {
			t.Errorf("got %s, %v", got, w.Ended())
		}
		resp, body = p.Get(sharded(path+"?watch=1", halves[0]))
		if resp.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "ADDED") { // client-go repeats what gets 429
			t.Errorf("%s, %s", resp.Status, body)
		}
		p.Passed(0)
		if _, body = p.Get(sharded(path, halves[0])); strings.Contains(body, "shardInfo") {
			t.Errorf("a list of everything is said to be a shard: %s", body)
		}
		p.Passed(1)
	})
	bubble.Row(t, "history", func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")             // 101
		p.CMs.Put("ns", "b", "1", "app", "x") // 102
		p.CMs.Put("ns", "a", "2", "app", "x") // 103
		p.CMs.Put("ns", "b", "2")             // 104
		p.Watch(bubble.AnyState).Await(3)
		newest := p.CMs.Put("ns", "z", "1")
		p.Up.On(proxytest.Form, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "compacted", 0) })
		// It is not known whether a and b had the label at 102.
		w := p.Watch("%s", sharded(fmt.Sprintf(bubble.Since, 102)+"&labelSelector=app", halves[0]))
		if got := w.Await(1)[0]; got.Code != http.StatusGone || w.Ended() != nil {
			t.Errorf("got %s, %v", got, w.Ended())
		}
		resp, body := p.Get(sharded(bubble.CMs+"?resourceVersion=90&resourceVersionMatch=Exact", halves[0]))
		if resp.StatusCode != http.StatusGone || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("%s, %s", resp.Status, body)
		}
		p.Passed(0)
		_, body = p.Get(sharded(fmt.Sprintf("%s?resourceVersion=%d", bubble.CMs, newest), halves[0]+"||"+halves[1]))
		if keys := slices.Sorted(maps.Keys(uids(t, body))); len(keys) != 3 {
			t.Errorf("both halves have %v", keys)
		}
	})
}
