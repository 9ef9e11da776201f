package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// assault attacks until ctx ends, at a bounded rate.
type assault func(ctx context.Context, a *attacker)

// kind is a kind of attack.
type kind struct {
	name     string
	run      assault
	insecure bool // it is for the insecure port
	most     int  // attackers at a time, if more would only overload kube-apiserver and the processors; 0 is any number
}

var kinds = slices.Concat(requestKinds, connectionKinds, http2Kinds)

// patient is how long most attackers wait for an answer.
const patient = 20 * time.Second

var requestKinds = []kind{
	{name: "garbage tokens, 58 KB selectors", run: garbageSelectors},
	{name: "garbage tokens on 200 connections", run: times(200, requests(anybody, .1, patient, uri("/api/v1/namespaces/t0/configmaps?resourceVersion=0")))},
	// kube-apiserver answers some of these with GOAWAY.
	{name: "anonymous requests", run: times(2, requests(nobody, 29, patient, uri("/api/v1/nodes")))},
	{name: "unknown groups, by strangers", run: requests(stranger, 20, patient, unknownGroup)},
	{name: "unknown groups, by a user who may", run: requests(scanner, 20, patient, unknownGroup)},
	{name: "impersonation", run: requests(mallory, 20, patient, impersonation)},
	{name: "60 watches with 54 KB selectors", run: selectorFlood, most: 1},
	// Initial events and lists that search the whole collection and find nothing.
	{name: "selective joins", most: 3, run: requests(crawler, 5, patient, func(a *attacker) request {
		return request{uri: allConfigMaps + manyValues(500) + "&resourceVersion=0" + []string{"", "&watch=1&timeoutSeconds=1"}[a.rng.IntN(2)]}
	})},
	// Watches from the beginning of history that match nothing.
	{name: "replays of history", most: 3, run: requests(crawler, 5, patient, func(a *attacker) request {
		return request{uri: allConfigMaps + manyValues(100) + "&watch=1&timeoutSeconds=1&resourceVersion=" + a.OldVersion}
	})},
	{name: "watch churn", run: requests(mallory, 20, 20*time.Millisecond, func(a *attacker) request {
		return request{uri: a.own() + "?watch=1&resourceVersion=0"}
	})},
	{name: "300 watches of one user", most: 1, run: times(300, requests(mallory, .1, longestRound, func(a *attacker) request {
		return request{uri: a.own() + "?watch=1&timeoutSeconds=60&fieldSelector=metadata.name=none"}
	}))},
	// A controller's loop. Nobody has had these lists compressed before.
	{name: "lists of everything with gzip", most: 2, run: requests(crawler, 1, patient, func(a *attacker) request {
		resource := []string{"configmaps", "configmaps", "pods"}[a.rng.IntN(3)]
		return request{uri: fmt.Sprintf("/api/v1/%s?resourceVersion=0&labelSelector=app!=none-%d", resource, a.rng.Uint32()), gzip: true}
	})},
	{name: "cold lanes", run: coldLanes, most: 2},
	{name: "anything in views", most: 3, run: requests(mallory, 20, patient, inViews)},
	{name: "passed-through reads", most: 2, run: requests(mallory, 5, patient, func(a *attacker) request {
		return request{uri: a.own() + "?limit=50", accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}
	})},
}

// times lets n of them attack at once.
func times(n int, f assault) assault {
	return func(ctx context.Context, a *attacker) { crowd(n, func(int) { f(ctx, a) }) }
}

// requests sends what next returns over one client's connections, and leaves after most.
func requests(of who, perSecond float64, most time.Duration, next func(a *attacker) request) assault {
	return func(ctx context.Context, a *attacker) {
		c := a.client(of(a))
		defer c.close()
		a.every(ctx, perSecond, func() { a.ask(ctx, c, next(a), most) })
	}
}

// uri is the same GET each time.
func uri(uri string) func(*attacker) request {
	return func(*attacker) request { return request{uri: uri} }
}

// manyTerms returns a label selector of about so many bytes. Every object matches each term, so
// that all terms are evaluated.
func manyTerms(bytes, salt int) string {
	b := []byte("labelSelector=")
	for i := 0; len(b) < bytes; i++ {
		b = fmt.Appendf(b, "k%d-%d!=v,", salt, i)
	}
	return string(b[:len(b)-1])
}

// manyValues returns a label selector of one term with many values, which no object has.
func manyValues(values int) string {
	all := make([]string, values)
	for i := range all {
		all[i] = fmt.Sprint("none-", i)
	}
	return "labelSelector=app+in+(" + strings.Join(all, ",") + ")"
}

const allConfigMaps = "/api/v1/configmaps?"

// garbageSelectors: the server must not look at anything for a token without an owner. Half of the
// clients leave before the answer.
func garbageSelectors(ctx context.Context, a *attacker) {
	c := a.client(anybody(a))
	defer c.close()
	a.every(ctx, 4, func() {
		uri := allConfigMaps + manyTerms(58_000, a.rng.IntN(10)) + []string{"", "&resourceVersion=0", "&watch=1&resourceVersion=0"}[a.rng.IntN(3)]
		if a.ask(ctx, c, request{uri: uri}, []time.Duration{patient, 50 * time.Millisecond}[a.rng.IntN(2)]) == http.StatusOK {
			a.breach("a garbage token got 200")
		}
	})
}

func unknownGroup(a *attacker) request {
	return request{uri: fmt.Sprintf([]string{"/apis/g%d.example.org/v1/things", "/apis/apps/v%d/deployments", "/api/v1/things%d",
		"/apis/g%d.example.org/v1/namespaces/t0/things?watch=1"}[a.rng.IntN(4)], a.rng.IntN(1<<20))}
}

// impersonation by a user without the right.
func impersonation(a *attacker) request {
	headers := []http.Header{
		{"Impersonate-User": {"admin"}}, {"Impersonate-User": {"dev-admin"}, "Impersonate-Group": {"system:masters"}},
		{"Impersonate-Group": {"system:masters"}}, {"impersonate-user": {"system:serviceaccount:t0:app"}},
		{"Impersonate-Uid": {"1"}},
		{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
	}
	uris := []string{"/api/v1/secrets?resourceVersion=0", "/api/v1/namespaces/t0/configmaps?resourceVersion=0",
		"/api/v1/secrets?watch=1&timeoutSeconds=1"}
	return request{uri: uris[a.rng.IntN(len(uris))], header: headers[a.rng.IntN(len(headers))]}
}

// selectorFlood: each update of the attacker's ConfigMap is compared with 60 selectors that are
// slow to evaluate.
func selectorFlood(ctx context.Context, a *attacker) {
	crowd(61, func(i int) {
		if i > 0 {
			requests(mallory, .2, longestRound, uri(a.own()+"?watch=1&timeoutSeconds=60&"+manyTerms(54_000, i)))(ctx, a)
			return
		}
		n := 0
		requests(mallory, 20, patient, func(a *attacker) request {
			n++
			return request{method: http.MethodPatch, uri: a.own() + "/cm-0", contentType: "application/merge-patch+json",
				body: fmt.Sprintf(`{"data":{"n":"%d"}}`, n)}
		})(ctx, a)
	})
}

// coldLanes: 30 lists at once of a resource that nobody else reads, in every form.
func coldLanes(ctx context.Context, a *attacker) {
	c := a.client(a.Hostile.Everything)
	defer c.close()
	resources := []string{"/api/v1/services", "/api/v1/endpoints", "/api/v1/serviceaccounts",
		"/apis/apps/v1/deployments", "/apis/batch/v1/jobs", "/api/v1/events",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/rolebindings", "/apis/coordination.k8s.io/v1/leases"}
	forms := []string{"application/json", protobufType, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
	a.every(ctx, .5, func() {
		r := request{uri: resources[a.rng.IntN(len(resources))] + "?resourceVersion=0", accept: forms[a.rng.IntN(len(forms))]}
		crowd(30, func(int) { a.ask(ctx, c, r, patient) })
	})
}
