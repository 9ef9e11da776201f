package exchange

import (
	"net/http"
	"net/url"
	"strings"
)

// Limits of a request's head, in every protocol.
const (
	// MaxHeaderBytes is the limit of its bytes; the same as kube-apiserver's, which has net/http's.
	MaxHeaderBytes = 1 << 20
	// MaxHeaderLines is the limit of its lines. kube-apiserver has none up to 1.37, and later this
	// one.
	MaxHeaderLines = 16384
)

// Refusal is the response to a request that its protocol rejects: a status code, and the message of
// the body.
type Refusal struct {
	Code    int
	Message string
}

// BadRequest returns the refusal of a request that is not what HTTP, or kube-apiserver, demands.
func BadRequest(message string) *Refusal { return &Refusal{http.StatusBadRequest, message} }

// The refusals of all protocols. A head is too long if it is longer than kube-apiserver's may be, or
// than may be held of it.
var (
	BadTarget   = BadRequest("the request target must be a path, whose escapes are whole")
	BadHost     = BadRequest("malformed Host header")
	TypeTwice   = BadRequest("the request says more than once what its body is")
	NoConnect   = &Refusal{http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"}
	HeadTooLong = &Refusal{http.StatusRequestHeaderFieldsTooLarge, "the request's header is too long"}
	Panicked    = &Refusal{http.StatusInternalServerError, ErrPanicked.Error()}
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
