package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/auth"
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

// mostRead is how many bytes of an answer are read.
const mostRead = 16 << 20

// ReadOwn decodes the answer to a GET of JSON with the proxy's own credentials into v. The error is
// ErrNotFound if there is nothing at path.
func ReadOwn(ctx context.Context, upstream auth.APIServer, path, query string, v any) error {
	resp, err := GetOwn(ctx, upstream, path, query, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("get %s: %w", path, ErrNotFound)
	default:
		return fmt.Errorf("get %s: %s", path, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostRead))
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// Query builds the query of an upstream request from pairs of key and value.
func Query(pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
