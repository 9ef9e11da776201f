package auth

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// refusal is a kube-apiserver that refuses a token.
type refusal struct{ *strings.Reader }

func (r refusal) DoAs(Identity, *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusUnauthorized, Body: io.NopCloser(r)}, nil
}

func (r refusal) URL(path, query string) *url.URL { return &url.URL{Path: path, RawQuery: query} }

// A refusal is read to its end. Otherwise its connection would be closed.
func TestRefusalsAreRead(t *testing.T) {
	r := refusal{strings.NewReader("Unauthorized")}
	a := authorizerOf(r)
	if a.allowed(t.Context(), byToken("t"), parse(t, "/api/v1/pods")) {
		t.Error("allowed")
	}
	if r.Len() > 0 {
		t.Errorf("%d bytes are left", r.Len())
	}
}

// TestReviewAttributes: the attributes are those by which kube-apiserver authorizes.
func TestReviewAttributes(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, review := ReviewFor(byToken("t"),
			AttributesOf(parse(t, line)))
		var got struct {
			APIVersion, Kind string
			Spec             struct{ ResourceAttributes json.RawMessage }
		}
		if err := json.Unmarshal(review, &got); err != nil || got.APIVersion != "authorization.k8s.io/v1" ||
			got.Kind != "SelfSubjectAccessReview" {
			t.Errorf("%s: %v %s", line, err, review)
		}
		if string(got.Spec.ResourceAttributes) != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got.Spec.ResourceAttributes, want)
		}
	}
	f("/api/v1/pods", `{"verb":"list","version":"v1","resource":"pods"}`)
	f("/apis/apps/v1/namespaces/a/deployments?watch=1",
		`{"namespace":"a","verb":"watch","group":"apps","version":"v1","resource":"deployments"}`)
	f("/api/v1/namespaces/a/pods/x?labelSelector=a",
		`{"namespace":"a","verb":"get","version":"v1","resource":"pods","name":"x"}`)
	f("/api/v1/namespaces/foo", `{"namespace":"foo","verb":"get","version":"v1","resource":"namespaces","name":"foo"}`)
	f("/api/v1/pods?watch=1&fieldSelector=spec.host%3Dn,metadata.name%3Dx,status.phase!%3Da",
		`{"verb":"watch","version":"v1","resource":"pods","name":"x","fieldSelector":{"requirements":[`+
			`{"key":"metadata.name","operator":"In","values":["x"]},`+
			`{"key":"spec.host","operator":"In","values":["n"]},`+
			`{"key":"status.phase","operator":"NotIn","values":["a"]}]}}`)
	f("/api/v1/pods?fieldSelector=metadata.namespace%3Da",
		`{"verb":"list","version":"v1","resource":"pods",`+
			`"fieldSelector":{"requirements":[{"key":"metadata.namespace","operator":"In","values":["a"]}]}}`)
	f("/api/v1/pods?labelSelector=a%3D1,b+in+(y,x),c!%3D2,d+notin+(3),e,!f,g%3E5",
		`{"verb":"list","version":"v1","resource":"pods","labelSelector":{"requirements":[`+
			`{"key":"a","operator":"In","values":["1"]},{"key":"b","operator":"In","values":["x","y"]},`+
			`{"key":"c","operator":"NotIn","values":["2"]},`+
			`{"key":"d","operator":"NotIn","values":["3"]},{"key":"e","operator":"Exists"},`+
			`{"key":"f","operator":"DoesNotExist"}]}}`)
	f("/api/v1/pods?labelSelector=g%3E5", `{"verb":"list","version":"v1","resource":"pods"}`)
	f("/api/v1/watch/namespaces/a/pods?fieldSelector=metadata.name%3Dx&labelSelector=a",
		`{"namespace":"a","verb":"watch","version":"v1","resource":"pods"}`)
	f("/api/v1/watch/namespaces/a/pods/x",
		`{"namespace":"a","verb":"watch","version":"v1","resource":"pods","name":"x"}`)
}
