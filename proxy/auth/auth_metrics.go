package auth

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exposition"
)

var (
	RejectedUnauthorized = apistatus.Rejections("unauthorized")

	authorizations = exposition.Describe("counter", "watchfan_authorizations_total",
		"Decisions whether a client may read, made from memory or by asking kube-apiserver.")
	authorizedFromMemory   = metrics.NewCounter(authorizations + `{source="memory"}`)
	authorizedFromUpstream = metrics.NewCounter(authorizations + `{source="upstream"}`)

	accessReviewsTotal = exposition.Describe("counter", "watchfan_access_reviews_total",
		"Access reviews sent to kube-apiserver for new requests and open watches, by verdict. The verdict none is no clear answer.")
	accessReviews = [...]*metrics.Counter{
		unclear: metrics.NewCounter(accessReviewsTotal + `{verdict="none"}`),
		denied:  metrics.NewCounter(accessReviewsTotal + `{verdict="no"}`),
		allowed: metrics.NewCounter(accessReviewsTotal + `{verdict="yes"}`),
	}
	reviewsRefused = metrics.NewCounter(exposition.Describe("counter", "watchfan_access_reviews_refused_total",
		"Access reviews about users of certificates and front proxies that kube-apiserver did not permit this proxy. The users' reads are passed through."))
)
