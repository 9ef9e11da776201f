package request

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Selectors of a sensible size are evaluated here, and others are passed through.
func TestSelectorBounds(t *testing.T) {
	list := func(n int, form string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(form, i)
		}
		return strings.Join(items, ",")
	}
	f := func(ls, fs string, want bool) {
		t.Helper()
		target := "/api/v1/pods?watch=1&labelSelector=" + url.QueryEscape(ls) + "&fieldSelector=" + url.QueryEscape(fs)
		x := &exchange.Exchange{Method: http.MethodGet, Target: target, Protocol: exchange.HTTP11}
		if _, ok := Parse(x); ok != want {
			t.Errorf("selectors of %d and %d bytes: served %v, want %v", len(ls), len(fs), ok, want)
		}
	}
	f("a=b", "spec.nodeName=n", true)
	f("app.kubernetes.io/instance in ("+list(500, "argocd-%d")+")", "", true)
	f(list(50, "!l%d"), list(50, "metadata.name!=x%d"), true)
	f(list(50, "!l%d"), list(51, "metadata.name!=x%d"), false)
	f(list(101, "!l%d"), "", false)
	f("", list(101, "metadata.name!=x%d"), false)
	f("l in ("+list(1000, "%d")+")", "", true)
	f("l in ("+list(1002, "%d")+")", "", false)
	f("l in ("+list(400, "a-value-of-some-length-%d")+")", "", false)
	f("l notin ("+list(5000, "%d")+")", "", false)
}

// A value that JSON cannot express would be another one in the access review, and in objects.
func TestReplacedSelector(t *testing.T) {
	for fs, want := range map[string]bool{
		"metadata.name%3Dx":                 true,
		"metadata.name%3D%C3%A9":            true,
		"metadata.name%3Du%FF":              false,
		"metadata.name%3Du%EF%BF%BD":        false,
		"reason%21%3D%80,metadata.name%3Dx": false,
	} {
		x := &exchange.Exchange{Method: http.MethodGet, Target: "/api/v1/events?fieldSelector=" + fs, Protocol: exchange.HTTP11}
		if req, ok := Parse(x); ok != want || !ok && req.Uncacheable != Parameters {
			t.Errorf("%s: served %v (%s), want %v", fs, ok, req.Uncacheable, want)
		}
	}
}
