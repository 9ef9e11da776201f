package auth

import (
	"fmt"
	"time"

	"github.com/watchfan/watchfan/proxy/option"
)

// MaxAnswerTTL is the longest that an answer of kube-apiserver, about rights or owners, may be
// believed.
const MaxAnswerTTL = time.Hour

// Options says who clients are, and how long kube-apiserver's answers about them are believed.
type Options struct {
	// ClientCAFile holds the authorities that sign client certificates, whose subjects are users.
	// It is read again when it changes. Empty: there are no client certificates.
	ClientCAFile string
	// AnonymousAuth passes requests to the secure port that bring no credential to kube-apiserver,
	// without one.
	AnonymousAuth bool
	// RequestHeaderClientCAFile holds the authorities that sign the certificates of front proxies,
	// which say in headers who their clients are. It is read again when it changes. Empty: there
	// are no front proxies.
	RequestHeaderClientCAFile string
	// RequestHeaderAllowedNames are the common names that front proxies may have. Empty: any.
	RequestHeaderAllowedNames []string
	// These are the headers in which front proxies name a user, its uid and its groups, and the
	// prefixes of those that hold extra. They are accepted from front proxies only, and never
	// forwarded.
	RequestHeaderUsernameHeaders, RequestHeaderUIDHeaders      []string
	RequestHeaderGroupHeaders, RequestHeaderExtraHeadersPrefix []string

	// AuthenticationTokenWebhookCacheTTL is how long kube-apiserver is believed whose a token is,
	// where that is asked at all; see owners. 0 asks for each request. At most MaxAnswerTTL, as the
	// next two.
	AuthenticationTokenWebhookCacheTTL time.Duration
	// AuthorizationWebhookCacheAuthorizedTTL is how long kube-apiserver is believed that a client
	// may read. The client can read for so long after it has lost the right. 0 asks for each
	// request.
	AuthorizationWebhookCacheAuthorizedTTL time.Duration
	// AuthorizationWebhookCacheUnauthorizedTTL is how long kube-apiserver is believed that a client
	// may not read. Its reads are passed through meanwhile. 0 asks for each request.
	AuthorizationWebhookCacheUnauthorizedTTL time.Duration
	// AuthorizationRecheckInterval is how often kube-apiserver is asked whether the client of an
	// open watch may still read. A watch ends when it may not, or when kube-apiserver has not said
	// so for six intervals. From 1s to 1h.
	AuthorizationRecheckInterval time.Duration
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Authentication")
	t.String(&o.ClientCAFile, "client-ca-file", "", "`FILE` with the authorities that sign client certificates, "+
		"read again when it changes (default none: no client certificates)")
	t.Bool(&o.AnonymousAuth, "anonymous-auth", true, "pass requests to the secure port without a credential through to "+
		"kube-apiserver, as system:anonymous")
	t.String(&o.RequestHeaderClientCAFile, "requestheader-client-ca-file", "", "`FILE` with the authorities that sign "+
		"front proxies' certificates, read again when it changes (default none: no front proxies)")
	t.Strings(&o.RequestHeaderAllowedNames, "requestheader-allowed-names",
		"common `NAMES` that front proxies' certificates may have (default any)")
	t.Strings(&o.RequestHeaderUsernameHeaders, "requestheader-username-headers",
		"`HEADERS` in which front proxies name a user, usually X-Remote-User")
	t.Strings(&o.RequestHeaderUIDHeaders, "requestheader-uid-headers",
		"`HEADERS` in which front proxies name a user's uid, usually X-Remote-Uid")
	t.Strings(&o.RequestHeaderGroupHeaders, "requestheader-group-headers",
		"`HEADERS` in which front proxies name a user's groups, usually X-Remote-Group")
	t.Strings(&o.RequestHeaderExtraHeadersPrefix, "requestheader-extra-headers-prefix",
		"`PREFIXES` of headers in which front proxies name a user's extra, usually X-Remote-Extra-")

	t.Group("Authorization")
	believed := option.Within(0, MaxAnswerTTL)
	t.Duration(&o.AuthenticationTokenWebhookCacheTTL, "authentication-token-webhook-cache-ttl", AnswerTTL,
		"`DURATION` for which a token's owner is remembered; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationWebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", AnswerTTL,
		"`DURATION` for which it is remembered that a client may read; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationWebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", AnswerTTL,
		"`DURATION` for which it is remembered that a client may not; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationRecheckInterval, "authorization-recheck-interval", recheckInterval,
		"`DURATION` between reviews whether the client of an open watch may read; "+
			"the watch ends after six without an answer", option.Within(time.Second, MaxAnswerTTL))
}

// Check reports front proxies that could name nobody.
func (o *Options) Check(t *option.Table) error {
	if o.RequestHeaderClientCAFile == "" || len(o.RequestHeaderUsernameHeaders) > 0 {
		return nil
	}
	return fmt.Errorf("%s is of no use without --requestheader-username-headers: give both, usually with X-Remote-User",
		t.Named("requestheader-client-ca-file"))
}
