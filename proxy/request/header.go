package request

import (
	"strings"

	"github.com/watchfan/watchfan/proxy/exchange"
)

// ImpersonatePrefix begins the names of all headers by which one user acts as another.
const ImpersonatePrefix = "Impersonate-"

// UpgradeType returns the protocol that the client asks to change to; "" for none.
func UpgradeType(x *exchange.Exchange) string {
	if x.Protocol != exchange.HTTP11 || x.Close || !hasToken(x.Header.Get("Connection"), "upgrade") {
		return ""
	}
	return x.Header.Get("Upgrade")
}

// hasToken reports whether a list of tokens has one, in upper or lower case.
func hasToken(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(t, " \t"), token) {
			return true
		}
	}
	return false
}

// HasPrefixFold reports whether s begins with prefix, in upper or lower case.
func HasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
