package auth

import (
	"fmt"
	"time"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// maxAnswerTTL bounds how long an answer of kube-apiserver, about rights or owners, may be
// believed.
const maxAnswerTTL = time.Hour

// Options says how clients are authenticated, and how long kube-apiserver's answers about them are
// believed. AddTo has the meaning of each. Files are read again when they change.
type Options struct {
	ClientCAFile  string
	AnonymousAuth bool

	RequestHeaderClientCAFile string
	RequestHeaderAllowedNames []string
	// These headers are accepted from front proxies only, and never forwarded.
	RequestHeaderUsernameHeaders, RequestHeaderUIDHeaders      []string
	RequestHeaderGroupHeaders, RequestHeaderExtraHeadersPrefix []string

	// Each is at most maxAnswerTTL. An owner is remembered where kube-apiserver is asked for it at all (see
	// Owners). A client that has lost a right can still read for as long as a yes is believed.
	AuthenticationTokenWebhookCacheTTL       time.Duration
	AuthorizationWebhookCacheAuthorizedTTL   time.Duration
	AuthorizationWebhookCacheUnauthorizedTTL time.Duration
	// From 1s to 1h.
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
	believed := option.Within(0, maxAnswerTTL)
	t.Duration(&o.AuthenticationTokenWebhookCacheTTL, "authentication-token-webhook-cache-ttl", answerTTL,
		"`DURATION` for which a token's owner is remembered; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationWebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", answerTTL,
		"`DURATION` for which it is remembered that a client may read; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationWebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", answerTTL,
		"`DURATION` for which it is remembered that a client may not; 0s asks kube-apiserver each time", believed)
	t.Duration(&o.AuthorizationRecheckInterval, "authorization-recheck-interval", recheckInterval,
		"`DURATION` between reviews whether the client of an open watch may read; "+
			"the watch ends after six without an answer", option.Within(time.Second, maxAnswerTTL))
}

// Check reports front proxies that have no header to name a user in.
func (o *Options) Check(t *option.Table) error {
	if o.RequestHeaderClientCAFile == "" || len(o.RequestHeaderUsernameHeaders) > 0 {
		return nil
	}
	return fmt.Errorf("%s needs --requestheader-username-headers: give both, usually with X-Remote-User",
		t.Named("requestheader-client-ca-file"))
}
