package auth

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
)

var (
	authorizations = exposition.Describe("counter", "watchfan_authorizations_total",
		"Decisions whether a client may read, made from memory or by asking kube-apiserver.")
	accessReviews = exposition.Describe("counter", "watchfan_access_reviews_total",
		"Access reviews sent to kube-apiserver for new requests and open watches, by verdict. "+
			"The verdict none is no clear answer.")
	refusedReviews = exposition.Describe("counter", "watchfan_access_reviews_refused_total",
		"Access reviews about users of certificates and front proxies that kube-apiserver did not permit this proxy. "+
			"The users' reads are passed through.")
	rulesReviews = exposition.Describe("counter", "watchfan_rules_reviews_total",
		"Rules reviews sent to kube-apiserver for tokens that get many names of a resource, by verdict. "+
			"After a yes no name has an access review of its own. "+
			"The verdict none is that an authorizer may decide by names, or no answer.")
	conditionalReviews = exposition.Describe("counter", "watchfan_access_reviews_conditional_total",
		"Access reviews whose answer has conditions (KEP-5681), or anything else that this proxy does not know. "+
			"They count as a no: the reads are passed through.")
	waitingReviews = exposition.Describe("gauge", "watchfan_access_reviews_waiting",
		"Access reviews that wait for their turn. The client known is one that kube-apiserver has accepted lately; stranger is one that is new to this proxy.")
)

// Metrics are the metrics of an Authorizer.
type Metrics struct {
	fromMemory, fromUpstream *metrics.Counter    // decisions
	reviews, rules           [3]*metrics.Counter // by outcome
	refused, conditional     *metrics.Counter    // reviews
	known, strangers         *metrics.Gauge      // reviews that wait
	busy                     *metrics.Counter    // rejected requests
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{
		fromMemory:   set.NewCounter(authorizations + `{source="memory"}`),
		fromUpstream: set.NewCounter(authorizations + `{source="upstream"}`),
		reviews: [...]*metrics.Counter{
			unclear: set.NewCounter(accessReviews + `{verdict="none"}`),
			denied:  set.NewCounter(accessReviews + `{verdict="no"}`),
			allowed: set.NewCounter(accessReviews + `{verdict="yes"}`),
		},
		rules: [...]*metrics.Counter{
			unclear: set.NewCounter(rulesReviews + `{verdict="none"}`),
			denied:  set.NewCounter(rulesReviews + `{verdict="no"}`),
			allowed: set.NewCounter(rulesReviews + `{verdict="yes"}`),
		},
		refused:     set.NewCounter(refusedReviews),
		conditional: set.NewCounter(conditionalReviews),
		known:       set.NewGauge(waitingReviews+`{client="known"}`, nil),
		strangers:   set.NewGauge(waitingReviews+`{client="stranger"}`, nil),
		busy:        apistatus.Rejections(set, "access_reviews"),
	}
}
