package request

import (
	"strings"

	"github.com/valyala/fasthttp"
)

// ImpersonatePrefix begins the names of all headers by which one user acts as another.
const ImpersonatePrefix = "Impersonate-"

// UpgradeType returns the protocol that the client asks to change to; "" for none.
func UpgradeType(ctx *fasthttp.RequestCtx) string {
	if !ctx.Request.Header.IsHTTP11() || !ctx.Request.Header.ConnectionUpgrade() {
		return ""
	}
	return string(ctx.Request.Header.Peek("Upgrade"))
}

// HeaderIs reports whether key, as it was sent, is the header called name.
func HeaderIs(key []byte, name string) bool {
	return len(key) == len(name) && strings.EqualFold(string(key), name)
}

// HasPrefixFold reports whether s begins with prefix, in upper or lower case.
func HasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// FirstHeader returns the first line of a header, as http.Header.Get does, and
// whether there is one. It finds a header however its name is spelt.
func FirstHeader(h *fasthttp.RequestHeader, name string) (string, bool) {
	for k, v := range h.All() {
		if HeaderIs(k, name) {
			return string(v), true
		}
	}
	return "", false
}
