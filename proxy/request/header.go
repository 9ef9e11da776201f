package request

import (
	"strings"

	"github.com/watchfan/watchfan/proxy/exchange"
)

// ImpersonatePrefix is the common prefix of the headers with which one user acts as another.
const ImpersonatePrefix = "Impersonate-"

// UpgradeType returns the protocol to which the client asks to upgrade, or "".
func UpgradeType(x *exchange.Exchange) string {
	if x.Protocol != exchange.HTTP11 || x.Close {
		return ""
	}
	for _, f := range x.Header {
		if f.Is("Connection") && hasToken(f.Value, "upgrade") {
			return x.Header.Get("Upgrade")
		}
	}
	return ""
}

// hasToken reports whether a comma-separated list contains token, ignoring case.
func hasToken(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(t, " \t"), token) {
			return true
		}
	}
	return false
}
