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
// believed.
type Options struct {
	// ClientCAFile holds the CAs that sign client certificates, whose subjects are users. It is read
	// again when it changes. Empty: there are no client certificates.
	ClientCAFile string
	// AnonymousAuth passes requests to the secure port that have no credential through to
	// kube-apiserver, without a credential.
	AnonymousAuth bool
	// RequestHeaderClientCAFile holds the CAs that sign the certificates of front proxies, which
	// name their clients in headers. It is read again when it changes. Empty: there are no front
	// proxies. RequestHeaderAllowedNames are the common names that they may have. Empty: any.
	RequestHeaderClientCAFile string
	RequestHeaderAllowedNames []string
	// These are the headers in which front proxies name a user, its uid and its groups, and the
	// prefixes of the headers with its extra. They are accepted from front proxies only, and never
	// forwarded.
	RequestHeaderUsernameHeaders, RequestHeaderUIDHeaders      []string
	RequestHeaderGroupHeaders, RequestHeaderExtraHeadersPrefix []string

	// These are how long the owner of a token is remembered, where kube-apiserver is asked for it at
	// all (see Owners), and how long kube-apiserver's yes and its no are believed. A client that has
	// lost a right can still read for as long as a yes is. After a no the client's reads are passed
	// through. 0 asks for each request. Each is at most maxAnswerTTL.
	AuthenticationTokenWebhookCacheTTL       time.Duration
	AuthorizationWebhookCacheAuthorizedTTL   time.Duration
	AuthorizationWebhookCacheUnauthorizedTTL time.Duration
	// AuthorizationRecheckInterval is the time between two reviews of an open watch. A watch ends
	// when its client may no longer read, or when kube-apiserver has not said yes for six
	// intervals. From 1s to 1h.
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
