package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// target is one way to the Kubernetes API: straight to kube-apiserver, or through a port of
// watchfan. It speaks HTTP/1.1, with -http2 it speaks HTTP/2 over TLS. It adds nothing: no
// compression of its own, no redirects, no User-Agent but ours.
type target struct {
	name  string
	base  string
	token string
	gzip  bool // watches are asked for as gzip
	http  *http.Client

	config *tls.Config // nil for plaintext
}

// zipped returns the same way for a client that takes gzip.
func (d *target) zipped() *target {
	z := *d
	z.name, z.gzip = d.name+"/gzip", true
	return &z
}

func newTarget(name, base string, config *tls.Config) *target {
	d := &target{name: name, base: base, config: config}
	d.http = proxytest.HTTPClient(&http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 64})
	if *overHTTP2 && config != nil {
		return d.http2()
	}
	return d
}

// http2 returns the same way over HTTP/2, with connections of its own, which its requests share.
func (d *target) http2() *target {
	to := *d
	to.name = strings.TrimSuffix(d.name, "/h2") + "/h2"
	to.http = proxytest.HTTP2Client(&http.Transport{TLSClientConfig: d.config})
	return &to
}

func (d *target) close() { d.http.CloseIdleConnections() }

// response is a whole answer.
type response struct {
	status int
	header http.Header
	body   []byte
}

// open sends a request and returns the answer, its body unread.
func (d *target) open(ctx context.Context, method, uri string, header http.Header,
	body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+uri, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if path, query, _ := strings.Cut(uri, "?"); strings.Contains(path, "//") {
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: "//" +
			req.URL.Host + path, RawQuery: query}
	}
	if body == "" {
		req.Body, req.ContentLength = nil, 0
	}
	req.Header.Set("User-Agent", "lab/1")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	if d.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	for k, v := range header {
		req.Header[k] = v
	}
	return d.http.Do(req)
}

// try sends a request and reads the answer.
func (d *target) try(method, uri string, header http.Header, body string) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	resp, err := d.open(ctx, method, uri, header, body)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, fmt.Errorf("read answer from %s to %s %s: %w", d.name, method, uri, err)
	}
	return response{resp.StatusCode, resp.Header, content}, nil
}

// look sends a GET and returns the answer without its body.
func (d *target) look(uri string, header http.Header) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), steady.Patience)
	defer cancel()
	resp, err := d.open(ctx, http.MethodGet, uri, header, "")
	if err != nil {
		return response{}, err
	}
	resp.Body.Close()
	return response{status: resp.StatusCode, header: resp.Header}, nil
}

// do is try, and fails the test on any error of the network.
func (d *target) do(t testing.TB, method, uri string, header http.Header, body string) response {
	t.Helper()
	resp, err := d.try(method, uri, header, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, uri, err)
	}
	return resp
}

func (d *target) get(t testing.TB, uri string) response {
	t.Helper()
	return d.do(t, http.MethodGet, uri, nil, "")
}

// write sends a write and returns the resourceVersion that it made.
func (d *target) write(method, uri, contentType, body string) (uint64, error) {
	resp, err := d.try(method, uri, http.Header{"Content-Type": {contentType}}, body)
	if err != nil {
		return 0, err
	}
	if resp.status >= 300 {
		return 0, fmt.Errorf("%s %s: %d: %s", method, uri, resp.status, resp.body)
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(resp.body, &o); err != nil {
		return 0, err
	}
	rv, _ := strconv.ParseUint(o.ResourceVersion, 10, 64) // the Status after some deletions has none
	return rv, nil
}

func (d *target) must(t testing.TB, method, uri, contentType, body string) uint64 {
	t.Helper()
	rv, err := d.write(method, uri, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return rv
}

func (d *target) create(t testing.TB, uri, body string) uint64 {
	t.Helper()
	return d.must(t, http.MethodPost, uri, "application/json", body)
}

// patch applies a JSON merge patch.
func (d *target) patch(t testing.TB, uri, body string) uint64 {
	t.Helper()
	return d.must(t, http.MethodPatch, uri, "application/merge-patch+json", body)
}

func (d *target) remove(t testing.TB, uri string) uint64 {
	t.Helper()
	return d.must(t, http.MethodDelete, uri+"?gracePeriodSeconds=0", "application/json", "")
}

// version returns the resourceVersion of a collection now.
func (d *target) version(t testing.TB, uri string) uint64 {
	t.Helper()
	resp := d.get(t, uri+"?limit=1")
	if resp.status != http.StatusOK {
		t.Fatalf("GET %s: %d: %s", uri, resp.status, resp.body)
	}
	return listVersion(t, resp.body)
}

func listVersion(t testing.TB, body []byte) uint64 {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	err := json.Unmarshal(body, &list)
	rv, err2 := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("list %.200q: %v", body, err)
	}
	return rv
}
