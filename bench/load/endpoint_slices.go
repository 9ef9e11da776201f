//go:build linux

package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	slicesSpace    = "slices" // namespace of the EndpointSlices
	slicesObjects  = 200
	sliceEndpoints = 34 // of each, which makes 10 KB of JSON
)

// endpointSlice returns an EndpointSlice after write number seq, the n-th of this object. It has
// the fields that the EndpointSlice controller sets. A rolling update replaces one endpoint after
// the other: each write replaces one, and the others stay as they are.
func endpointSlice(name string, object int, seq uint64, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,`+
		`"labels":{"kubernetes.io/service-name":"checkout","endpointslice.kubernetes.io/managed-by":"bench"},`+
		`"annotations":{"%s":"%d"}},"addressType":"IPv4","ports":[{"name":"http","port":8080,"protocol":"TCP"}],`+
		`"endpoints":[`, name, seqAnnotation, seq)
	for e := range sliceEndpoints {
		if e > 0 {
			b.WriteByte(',')
		}
		b.WriteString(sliceEndpoint(object*sliceEndpoints+e, replaced(e, n)))
	}
	b.WriteString("]}")
	return b.String()
}

// replaced returns how often endpoint e of a slice has been replaced after n writes. Write 1
// replaces endpoint 0, write 2 endpoint 1, and so on, and then endpoint 0 again.
func replaced(e, n int) int { return (n + sliceEndpoints - 1 - e) / sliceEndpoints }

// sliceEndpoint returns the i-th endpoint of all slices in one generation, the same in every run.
func sliceEndpoint(i, generation int) string {
	r := rand.NewChaCha8(seed(i<<20 | generation))
	return fmt.Sprintf(`{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},`+
		`"nodeName":"node-%05d","targetRef":{"kind":"Pod","name":"checkout-6f7d9c8b5-%s","namespace":"%s",`+
		`"uid":"%s-%s-4%s-8%s-%s"},"zone":"zone-%c"}`,
		128+r.Uint64()%100, r.Uint64()%250, 1+r.Uint64()%250, r.Uint64()%5000, hex(r, 3), slicesSpace,
		hex(r, 4), hex(r, 2), hex(r, 2)[1:], hex(r, 2)[1:], hex(r, 6), 'a'+byte(r.Uint64()%3))
}
