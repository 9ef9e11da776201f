package exchange

import (
	"net/url"
	"strings"
)

// Target is a request line's target in its parts, as sent.
type Target struct {
	Authority string // of a target in absolute form, as sent to a proxy; "" for none
	Path      string
	Query     string
	Asked     bool // there is a "?"
}

// CutTarget splits a target. ok is false if kube-apiserver's HTTP server would reject it. A target
// must be a path, or a URL with one, and each % in the path must begin an escape.
func CutTarget(target string) (t Target, ok bool) {
	if !strings.HasPrefix(target, "/") {
		_, rest, absolute := strings.Cut(target, "://")
		slash := strings.IndexAny(rest, "/?#")
		if !absolute || slash < 0 || rest[slash] != '/' {
			return Target{}, false
		}
		t.Authority, target = rest[:slash], rest[slash:]
	}
	t.Path, t.Query, t.Asked = strings.Cut(target, "?")
	_, err := url.PathUnescape(t.Path)
	return t, err == nil
}
