package cached

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// Upstream is asked for exactly the objects that a read selects. Otherwise a proof of a part would
// compare different objects.
func TestPart(t *testing.T) {
	fieldLabels := []string{"spec.nodeName"}
	f := func(line string) {
		t.Helper()
		r := readOf(t, nil, line, fieldLabels...)
		part := r.part()
		if part == nil {
			t.Fatalf("%s: no part", line)
		}
		ls, err := labels.Parse(part.Selection.Labels)
		if err != nil {
			t.Fatal(err)
		}
		fs, err := fields.ParseSelector(part.Selection.Fields)
		if err != nil {
			t.Fatal(err)
		}
		asked, _ := fanout.NewFilter(part.Selection.Namespace, ls, fs, fieldLabels)
		if asked.Key() != part.Filter.Key() || part.Filter != r.filter {
			t.Errorf("%s: upstream is asked for %+v, %q, want %q", line, part.Selection, asked.Key(), r.filter.Key())
		}
	}
	const pods = "/api/v1/pods?"
	f("/api/v1/namespaces/ns/pods")
	f("/api/v1/watch/namespaces/ns/pods/web")
	f(pods + "watch=1&labelSelector=app%3Dweb")
	for _, selector := range []string{"a=b,c!=d", "a", "!a", "a+in+(x,y)", "a+notin+(x,y)", "a+in+(x)", "a=", "a==b", "a>3", "a<3", "x.io/y=z"} {
		f(pods + "labelSelector=" + selector)
	}
	for _, selector := range []string{"metadata.name=x", "metadata.name!=x", "metadata.namespace=ns", "spec.nodeName=", "spec.nodeName==n",
		"metadata.name=x,spec.nodeName!=n", `metadata.name=a\%3Db`} {
		f(pods + "fieldSelector=" + selector)
	}
	for _, line := range []string{"/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/namespaces/ns/pods/web"} {
		if part := (&read{Request: proxytest.MustParse(t, request.Parse, line)}).part(); part != nil {
			t.Errorf("%s: %+v", line, part)
		}
	}
}
