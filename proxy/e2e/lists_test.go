package e2e_test

import (
	"bytes"
	"fmt"
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
