package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// A list that gets no seat in time gets 429 and does not pass through. Gets, watches and requests
// that pass through need no seat.
func TestListWithoutASeat(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	rv := f.cms.Put("a", "x", "1")
	f.watch("%s", cmsPath+"?watch=1&resourceVersion=0").AwaitVersion(rv)
	release := f.server.HoldSeats()
	for range 2 {
		resp, body := f.get(cmsPath + "?resourceVersion=0&timeout=20ms")
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
			!strings.Contains(body, `"reason":"TooManyRequests"`) {
			t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
		}
	}
	f.passed(0)
	resp, body := f.get(strings.Replace(cmsPath, "configmaps", "namespaces/a/configmaps/x", 1) + "?resourceVersion=0")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a get: %s: %s", resp.Status, body)
	}
	f.watch("%s", cmsPath+"?watch=1&resourceVersion=0").AwaitVersion(rv)
	f.passed(0)
	if resp, body := f.get(cmsPath + "?limit=1&resourceVersion=0&pretty=1"); resp.StatusCode != http.StatusOK {
		t.Errorf("what is passed through: %s: %s", resp.Status, body)
	}
	release()
	if resp, body := f.get(cmsPath + "?resourceVersion=0"); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s: %s", resp.Status, body)
	}
}
