package proxy

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// fakeUpstream answers requests by a func, and counts them.
type fakeUpstream struct {
	answer func(id identity, path string, body []byte) (code int, text string, err error)
	delay  time.Duration

	mu    sync.Mutex
	asked []string
}

func (u *fakeUpstream) URL(path, rawQuery string) *url.URL {
	return &url.URL{Scheme: "https", Host: "upstream", Path: path, RawQuery: rawQuery}
}

func (u *fakeUpstream) DoAs(id identity, req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	u.mu.Lock()
	u.asked = append(u.asked, req.URL.Path)
	u.mu.Unlock()
	select {
	case <-time.After(u.delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	code, text, err := u.answer(id, req.URL.Path, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(text))}, nil
}

func (u *fakeUpstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.asked)
}
