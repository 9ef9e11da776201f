package diagnose_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/selfcheck"
)

// One request at a time has digests computed. Requests that only read are answered.
func TestDigestsPageTurns(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	page := diagnose.DigestsPage(func(resource string, rv uint64) []selfcheck.LaneDigest {
		if rv == 7 {
			begun <- struct{}{}
			<-goOn
		}
		return []selfcheck.LaneDigest{{Encoding: "json"}}
	})
	ask := func(method, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		page(w, httptest.NewRequest(method, "/debug/digests?resource=v1/pods"+query, nil))
		return w
	}
	done := make(chan int)
	go func() { done <- ask(http.MethodGet, "&resourceVersion=7").Code }()
	<-begun
	if w := ask(http.MethodGet, ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("the second request got %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	close(goOn)
	if code := <-done; code != http.StatusOK {
		t.Errorf("the first request got %d", code)
	}
	if w := ask(http.MethodGet, ""); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("the third request got %d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	if w := ask(http.MethodPost, ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST got %d", w.Code)
	}
}
