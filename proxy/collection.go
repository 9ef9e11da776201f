package proxy

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// collectionPath is the path of a resource's whole collection: /api/v1/pods, /apis/apps/v1/deployments.
func collectionPath(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// matchesNothing is a field selector that selects no object: the name is not a legal one.
const matchesNothing = "metadata.name=-"

// getOwn sends a GET with our own credentials.
func getOwn(ctx context.Context, upstream doer, path, query, accept string) (*http.Response, error) {
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    upstream.URL(path, query),
		Header: http.Header{"Accept": {accept}},
	}).WithContext(ctx)
	return upstream.DoAs(identity{kind: kindOwn}, req)
}

// query builds the query of an upstream request from pairs of key and value.
func query(pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
