package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

func makeConfigMap(t testing.TB, d *target, ns, name, labels string) uint64 {
	t.Helper()
	return d.create(t, "/api/v1/namespaces/"+ns+"/configmaps",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{%s}},"data":{"k":"0"}}`,
			name, labels))
}

// page is one page of a list.
type page struct {
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        int
	}
	Items []json.RawMessage
}

func readPage(t *testing.T, d *target, uri string) page {
	t.Helper()
	resp := d.get(t, uri)
	if resp.status != http.StatusOK {
		t.Fatalf("%s %s: %d: %s", d.name, uri, resp.status, resp.body)
	}
	var p page
	if err := json.Unmarshal(resp.body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPages: "Tokens must be interchangeable with the upstream's in both directions", "Items of
// later pages come from the same revision" (contract.md 2.5; L04, L06, L07).
func TestPages(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	ours, theirs := sharedWatchfan(t).plain(t), c.direct(t)
	createNamespaces(t, theirs, "pages")
	uri := "/api/v1/namespaces/pages/configmaps"
	for i := range 7 {
		makeConfigMap(t, theirs, "pages", fmt.Sprintf("p%d", i), "")
	}
	ours.get(t, uri+"?resourceVersion=0") // a lane to answer from
	for name, ways := range map[string][]*target{
		"both through watchfan": {ours, ours}, "first through watchfan": {ours, theirs},
		"first straight": {theirs, ours}, "in turns": {ours, theirs, ours, theirs},
	} {
		for _, first := range []string{"limit=2", "limit=2&resourceVersionMatch=NotOlderThan&resourceVersion=NOW"} {
			first = strings.ReplaceAll(first, "NOW", fmt.Sprint(theirs.version(t, uri)))
			var items []json.RawMessage
			one := readPage(t, ways[0], uri+"?"+first)
			if one.Metadata.RemainingItemCount != 5 {
				t.Errorf("%s: remainingItemCount %d, want 5", name, one.Metadata.RemainingItemCount)
			}
			want := readPage(t, theirs,
				uri+"?resourceVersionMatch=Exact&resourceVersion="+one.Metadata.ResourceVersion).Items
			items = append(items, one.Items...)
			theirs.patch(t, uri+"/p5", fmt.Sprintf(`{"data":{"k":%q}}`, name+first))
			makeConfigMap(t, theirs, "pages", "p9", "")
			theirs.remove(t, uri+"/p9")
			token := one.Metadata.Continue
			for i := 1; token != ""; i++ {
				next := readPage(t, ways[min(i, len(ways)-1)], uri+"?limit=2&continue="+url.QueryEscape(token))
				if next.Metadata.ResourceVersion != one.Metadata.ResourceVersion {
					t.Errorf("%s: page %d is of %s, the first of %s", name, i, next.Metadata.ResourceVersion,
						one.Metadata.ResourceVersion)
				}
				items, token = append(items, next.Items...), next.Metadata.Continue
			}
			if got, want := fmt.Sprintf("%s", items), fmt.Sprintf("%s", want); got != want {
				t.Errorf("%s, %s: the pages hold\n%s\nwant\n%s", name, first, got, want)
			}
		}
	}
}

// TestReadYourWrites: "write an object through the upstream, at once GET via proxy: the write is
// visible" (contract.md L01). This holds for lists and gets, for watches that begin with the
// current state, and at a resourceVersion.
func TestReadYourWrites(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	ours, theirs := sharedWatchfan(t).plain(t), c.direct(t)
	createNamespaces(t, theirs, "fresh")
	uri := "/api/v1/namespaces/fresh/configmaps"
	makeConfigMap(t, theirs, "fresh", "x", "")
	modern := theirs.enables(t, watchList)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("w%d", worker)
			makeConfigMap(t, theirs, "fresh", name, "")
			for i := range 20 {
				value := fmt.Sprintf(`"k":"%d-%d"`, worker, i)
				rv := theirs.patch(t, uri+"/"+name, "{\"data\":{"+value+"}}")
				for _, read := range []string{uri, uri + "/" + name, fmt.Sprintf("%s?resourceVersion=%d", uri, rv),
					fmt.Sprintf("%s/%s?resourceVersion=%d", uri, name, rv),
					uri + "?fieldSelector=metadata.name%3D" + name} {
					if resp := ours.get(t, read); !bytes.Contains(resp.body, []byte(value)) {
						t.Errorf("%s does not have %s of %d: %s", read, value, rv, resp.body)
					}
				}
				if i%5 == 0 && modern {
					r := ours.watch(t, uri+"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"+
						"&resourceVersionMatch=NotOlderThan")
					initial := r.initial(t)
					if end := initial[len(initial)-1]; end.rv < rv {
						t.Errorf("initial events end at %d, before the write at %d", end.rv, rv)
					}
					if !slices.ContainsFunc(initial, func(e event) bool { return strings.Contains(e.line, value) }) {
						t.Errorf("initial events lack %s", value)
					}
					r.stop()
				}
			}
		})
	}
	wg.Wait()
}
