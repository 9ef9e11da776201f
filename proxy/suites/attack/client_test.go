package attack_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// way is how a client reaches the API, and as whom.
type way struct {
	name   string
	base   string // https://HOST:PORT
	token  string
	tenant string // the only tenant whose objects it may see; "" may see all
	tls    *tls.Config
	http2  *http.Client // shared by all clients of this way; nil: each has connections of its own, over HTTP/1.1
}

type client struct {
	way  way
	http *http.Client
}

func newClient(w way) *client {
	if w.http2 != nil {
		return &client{w, w.http2}
	}
	return &client{w, proxytest.HTTPClient(&http.Transport{TLSClientConfig: w.tls, TLSHandshakeTimeout: patience})}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// request is one request; path and query are as on the wire.
type request struct {
	method, uri, accept, contentType, body string
	gzip                                   bool
	header                                 http.Header
}

func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.way.base+r.uri, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if c.way.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.way.token)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	return c.http.Do(req)
}

// send sends a request and reads the answer.
func (c *client) send(ctx context.Context, r request) (code int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := c.open(ctx, r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// must sends a request that prepares the world.
func (c *client) must(ctx context.Context, r request) ([]byte, error) {
	code, _, body, err := c.send(ctx, r)
	if err == nil && code >= 300 {
		err = fmt.Errorf("%s %s: %d: %.300s", r.method, r.uri, code, body)
	}
	return body, err
}

func (c *client) create(ctx context.Context, uri, body string) error {
	_, err := c.must(ctx, request{method: http.MethodPost, uri: uri, contentType: "application/json", body: body})
	return err
}

// retryAfter returns how long an answer tells a client to wait, at most 10 s.
func retryAfter(h http.Header) (time.Duration, bool) {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	return time.Duration(min(max(seconds, 0), 10)) * time.Second, err == nil
}

// fault names what went wrong with a request, in a few words that can be counted.
func fault(code int, header http.Header, err error) string {
	_, says := retryAfter(header)
	switch {
	case err == nil && code == http.StatusTooManyRequests && !says:
		return "429 without a Retry-After"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case err != nil:
		return "connection broken"
	}
	return strconv.Itoa(code)
}
