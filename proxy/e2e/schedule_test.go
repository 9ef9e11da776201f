package e2e_test

import (
	"fmt"
	"testing"
)

// TestWriteThatChangesNothing: a write that changes nothing makes no event (contract.md W47).
func TestWriteThatChangesNothing(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "same")
	const uri = "/api/v1/namespaces/same/configmaps"
	rv := makeConfigMap(t, direct, "same", "x", "")
	s := sharedWatchfan(t).plain(t).watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", uri, rv))
	if again := direct.patch(t, uri+"/x", `{"data":{"k":"0"}}`); again != rv {
		t.Fatalf("kube-apiserver made %d of %d", again, rv)
	}
	last := direct.patch(t, uri+"/x", `{"data":{"k":"1"}}`)
	if first := s.wait(t, 1)[0]; first.rv != last {
		t.Errorf("got %s, want the change of %d", first, last)
	}
	s.stop()
}
