package upstream

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/auth"
)

// CollectionPath returns the path of a resource's whole collection: /api/v1/pods,
// /apis/apps/v1/deployments.
func CollectionPath(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// MatchesNothing is a field selector that selects no object, because no object may have that name.
const MatchesNothing = "metadata.name=-"

// GetOwn sends a GET with the proxy's own credentials.
func GetOwn(ctx context.Context, upstream auth.APIServer, path, query, accept string) (*http.Response, error) {
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    upstream.URL(path, query),
		Header: http.Header{"Accept": {accept}},
	}).WithContext(ctx)
	return upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req)
}

// Query builds the query of an upstream request from pairs of key and value.
func Query(pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
