package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

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

// versionsOf lists at kube-apiserver: key to resourceVersion.
func versionsOf(t *testing.T, direct *target, uri string) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, ResourceVersion string }
		}
	}
	if err := json.Unmarshal(direct.get(t, uri).body, &list); err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]string)
	for _, o := range list.Items {
		versions[strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")] = o.Metadata.ResourceVersion
	}
	return versions
}
