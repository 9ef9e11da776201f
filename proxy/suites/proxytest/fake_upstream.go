package proxytest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// FakeUpstream answers requests with a func and counts them. ID is the identity with which a
// request is made. Its methods may be called from any goroutine.
type FakeUpstream[ID any] struct {
	Answer func(id ID, path string, body []byte) (code int, text string, err error) // one call at a time
	Delay  time.Duration                                                            // before each answer

	Mu    sync.Mutex // held while it answers
	count int        // guarded by Mu
}

// URL returns the URL of a path on a server that does not exist.
func (u *FakeUpstream[ID]) URL(path, rawQuery string) *url.URL {
	return &url.URL{Scheme: "https", Host: "upstream", Path: path, RawQuery: rawQuery}
}

// DoAs answers req, made as id.
func (u *FakeUpstream[ID]) DoAs(id ID, req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	u.Mu.Lock()
	u.count++
	u.Mu.Unlock()
	if u.Delay > 0 {
		select {
		case <-time.After(u.Delay): //testlint:allow timer the fault that a test asks for
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	u.Mu.Lock()
	defer u.Mu.Unlock()
	code, text, err := u.Answer(id, req.URL.Path, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code),
		Body: io.NopCloser(strings.NewReader(text))}, nil
}

// Count returns how many requests have come.
func (u *FakeUpstream[ID]) Count() int {
	u.Mu.Lock()
	defer u.Mu.Unlock()
	return u.count
}
