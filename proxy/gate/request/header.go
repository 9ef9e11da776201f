package request

import (
	"golang.org/x/net/http/httpguts"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ImpersonatePrefix is the common prefix of the headers with which one user acts as another.
const ImpersonatePrefix = "Impersonate-"

// UpgradeType returns the protocol to which the client asks to upgrade, or "".
func UpgradeType(x *exchange.Exchange) string {
	if x.Protocol != exchange.HTTP11 || x.Close || !httpguts.HeaderValuesContainsToken(x.Header.All("Connection"), "upgrade") {
		return ""
	}
	return x.Header.Get("Upgrade")
}
