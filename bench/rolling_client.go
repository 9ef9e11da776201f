//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A rollingClient lists once and then watches, as a reflector does. When a watch ends, it resumes
// from the last resourceVersion that it has seen. It lists again only after a 410.
type rollingClient struct {
	endpoint
	selection
	http    *http.Client
	latency *atomic.Pointer[measure.Histogram]

	mu      sync.Mutex
	began   uint64    // resourceVersion of the list
	seen    []uint64  // resourceVersions of the events after it
	live    bool      // it watches
	watched time.Time // begin of its last watch
	relists int       // lists after the first
	gone    int       // answers, or events, of 410
	ends    int       // watches that ended properly
	breaks  int       // watches that ended otherwise, and requests that failed
}

// rollingAgent is the clients' User-Agent. It separates their requests from watchfan's own in
// kube-apiserver's audit log.
const rollingAgent = "rolling-client"

// newRollingHTTP returns an HTTP client for one or more clients. Over HTTP/2 they share connections.
func newRollingHTTP(e endpoint, p protocol) *http.Client {
	transport := &http.Transport{TLSClientConfig: e.tls.Clone(), DisableCompression: true, ReadBufferSize: 16 << 10}
	if p == http20 {
		transport.TLSClientConfig = offerH2(e.tls)
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP2(true)
	}
	return &http.Client{Transport: transport}
}

var errExpired = errors.New("410 Gone")

// run lists and watches until ctx ends.
func (c *rollingClient) run(ctx context.Context) {
	defer c.http.CloseIdleConnections()
	last := uint64(0)
	for lists := 0; ctx.Err() == nil; {
		var err error
		watched := last != 0
		if last == 0 {
			if last, err = c.list(ctx); err == nil {
				lists++
				c.mu.Lock()
				if c.began == 0 {
					c.began = last
				}
				if lists > 1 {
					c.relists++
				}
				c.mu.Unlock()
			}
		} else {
			last, err = c.watch(ctx, last)
		}
		c.mu.Lock()
		c.live = false
		switch {
		case err == nil && watched:
			c.ends++
		case err == nil:
		case errors.Is(err, errExpired):
			c.gone++
			last = 0
		case ctx.Err() == nil:
			c.breaks++
		}
		c.mu.Unlock()
		if err != nil {
			_ = sleep(ctx, 200*time.Millisecond)
		}
	}
}

func (c *rollingClient) get(ctx context.Context, query string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url()+c.path+"?"+query, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", rollingAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusGone {
		return nil, errExpired
	}
	return nil, fmt.Errorf("%s", resp.Status)
}

func (c *rollingClient) list(ctx context.Context) (uint64, error) {
	resp, err := c.get(ctx, c.query)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body) // then the connection can carry the watch
	return strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
}

// watch watches from a resourceVersion and returns the last one that it has seen. A proper end is
// no error.
func (c *rollingClient) watch(ctx context.Context, last uint64) (uint64, error) {
	resp, err := c.get(ctx, c.query+"&watch=1&allowWatchBookmarks=true&resourceVersion="+strconv.FormatUint(last, 10))
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	c.mu.Lock()
	c.live, c.watched = true, time.Now()
	c.mu.Unlock()
	in := bufio.NewReaderSize(resp.Body, 8<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		if bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			if bytes.Contains(line, []byte(`"code":410`)) {
				return last, errExpired
			}
			return last, fmt.Errorf("%.200s", line)
		}
		rv, err := numberAfter(line, `"resourceVersion":"`)
		if err != nil {
			return last, err
		}
		last = rv
		if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			continue
		}
		if sent, err := numberAfter(line, `"sent":"`); err == nil && !bytes.HasPrefix(line, []byte(`{"type":"DELETED"`)) {
			c.latency.Load().Record(time.Since(time.Unix(0, int64(sent))))
		}
		c.mu.Lock()
		c.seen = append(c.seen, rv)
		c.mu.Unlock()
	}
}

// numberAfter returns the number after the first occurrence of a key.
func numberAfter(line []byte, key string) (uint64, error) {
	_, rest, ok := bytes.Cut(line, []byte(key))
	digits, _, _ := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return 0, fmt.Errorf("no %s in %.200q", key, line)
	}
	return strconv.ParseUint(string(digits), 10, 64)
}

// watchedSince reports whether the client watches or has begun a watch since a time.
func (c *rollingClient) watchedSince(begin time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live || c.watched.After(begin)
}

// state returns the resourceVersions of the client's events, and the one of its list.
func (c *rollingClient) state() (seen []uint64, began uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[:len(c.seen):len(c.seen)], c.began
}
