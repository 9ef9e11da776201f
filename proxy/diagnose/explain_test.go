package diagnose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// adminAnswering is an admin port that gives the same answer to each request. asked lists the
// requests.
func adminAnswering(t *testing.T, code int, body string) (a *adminPort, asked *[]string) {
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.String())
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return &adminPort{url: s.URL + "/"}, asked
}

// Without an id, the slowest watch is explained.
func TestExplain(t *testing.T) {
	a, asked := adminAnswering(t, http.StatusOK, `{"watchers":[{"id":17}]}`)
	var out strings.Builder
	if err := a.explain(&out, "", true); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*asked, " "); got != "/debug/watchers?format=json&limit=1 /debug/watchers/17?format=json" {
		t.Errorf("asked %s", got)
	}
	*asked = nil
	if err := a.explain(&out, "3/../x", false); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*asked, " "); got != "/debug/watchers/3%2F..%2Fx?format=text" {
		t.Errorf("asked %s", got)
	}
}

// Errors say what to do.
func TestAdminErrors(t *testing.T) {
	for _, c := range []struct {
		code       int
		body, says string
	}{
		{http.StatusOK, `{"watchers":[]}`, "no watch is served from a cache now"},
		{http.StatusOK, `<html>`, "give its admin port with --admin"},
		{http.StatusNotFound, "there is no watch 7", "404 Not Found: there is no watch 7"},
	} {
		a, _ := adminAnswering(t, c.code, c.body)
		if err := a.explain(new(strings.Builder), "", false); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v, want %q", c.code, c.body, err, c.says)
		}
	}
	for url, says := range map[string]string{
		"http://127.0.0.1:1": "is watchfan running",
		"127.0.0.1:1": "does not answer at http://127.0.0.1:1 (dial tcp 127.0.0.1:1: connect: " +
			"connection refused)",
		"http://a b":      "is no URL",
		"ftp://127.0.0.1": "unsupported protocol",
	} {
		if err := (&adminPort{url: url}).explain(new(strings.Builder), "1", false); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", url, err, says)
		}
	}
}
