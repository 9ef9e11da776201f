//go:build linux

package load

import (
	"encoding/json"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestEndpointSlice: an EndpointSlice is one to kube-apiserver, has about 10 KB, and differs from
// the one before in one endpoint.
func TestEndpointSlice(t *testing.T) {
	decode := func(object, n int) *discoveryv1.EndpointSlice {
		t.Helper()
		text := endpointSlice("object-0007", object, uint64(n), n)
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		slice := new(discoveryv1.EndpointSlice)
		if err := d.Decode(slice); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(text) < 9000 || len(text) > 10_000 || len(slice.Endpoints) != sliceEndpoints {
			t.Fatalf("%d bytes, %d endpoints", len(text), len(slice.Endpoints))
		}
		return slice
	}
	before := decode(3, 0)
	for n := 1; n <= 2*sliceEndpoints+1; n++ {
		now := decode(3, n)
		for e := range now.Endpoints {
			same := now.Endpoints[e].TargetRef.UID == before.Endpoints[e].TargetRef.UID
			if replaced := e == (n-1)%sliceEndpoints; same == replaced {
				t.Fatalf("write %d, endpoint %d: replaced is %t", n, e, !same)
			}
		}
		before = now
	}
	if decode(3, 5).Endpoints[0].TargetRef.UID == decode(4, 5).Endpoints[0].TargetRef.UID {
		t.Error("two slices have the same endpoint")
	}
}
