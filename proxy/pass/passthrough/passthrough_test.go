package passthrough

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/", "/api/v1/pods?watch=1", "//x/../y%2Fz?a=%zz&b", "/%zz", "http://host/path?q", "http://host", "*", "host:443", "/a?b?c#d", "/\xff|"} {
		f.Add(seed)
	}
	upstream, err := upstream.NewUpstream(&rest.Config{Host: "https://kube.example:6443/base/"})
	if err != nil {
		f.Fatal(err)
	}
	p := &Forwarder{Config: Config{Upstream: upstream}}
	f.Fuzz(func(t *testing.T, target string) {
		if _, ok := exchange.CutTarget(target); !ok {
			return
		}
		u := p.target(target)
		if u.Host != "kube.example:6443" || u.Scheme != "https" {
			t.Fatalf("%q leads to %s", target, u)
		}
		got := u.RequestURI()
		if !strings.HasPrefix(got, "/base/") {
			t.Fatalf("%q leads to %q, outside the base path", target, got)
		}
		if plain(target) && strings.HasPrefix(target, "/") && got != "/base"+target {
			t.Fatalf("%q became %q", target, got)
		}
	})
}

// plain reports whether a target has no bytes that must be escaped in a path.
func plain(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>\\^`{|}", c) >= 0 {
			return false
		}
	}
	return true
}
