package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// kind is a kind of attack. run attacks until ctx ends, at a bounded rate.
type kind struct {
	name     string
	run      func(ctx context.Context, a *attacker)
	insecure bool // it is for the insecure port
	most     int  // attackers at a time, if more would only overload kube-apiserver and the processors; 0 is any number
}

var kinds = slices.Concat(http1Kinds, http2Kinds)

var http1Kinds = []kind{
	{name: "garbage tokens, 58 KB selectors", run: garbageSelectors},
	{name: "garbage tokens on 200 connections", run: garbageCrowd},
	{name: "anonymous requests", run: anonymous},
	{name: "unknown groups, by strangers", run: unknownGroupsByStrangers},
	{name: "unknown groups, by a user who may", run: unknownGroupsByScanner},
	{name: "impersonation", run: impersonation},
	{name: "60 watches with 54 KB selectors", run: selectorFlood, most: 1},
	{name: "selective joins", run: selectiveJoins, most: 3},
	{name: "replays of history", run: replays, most: 3},
	{name: "watch churn", run: watchChurn},
	{name: "300 watches of one user", run: manyWatches, most: 1},
	{name: "lists of everything with gzip", run: gzipLists, most: 2},
	{name: "cold lanes", run: coldLanes, most: 2},
	{name: "passed-through reads", run: passedThrough, most: 2},
	{name: "bodies that break off", run: brokenBodies},
	{name: "slow readers of large lists", run: slowReaders},
	{name: "watchers that do not read", run: deafWatchers},
	{name: "heads byte by byte", run: slowHeads},
	{name: "half handshakes", run: halfHandshakes},
	{name: "connection churn", run: connectionChurn},
	{name: "huge heads", run: hugeHeads},
	{name: "malformed requests, TLS", run: malformedSecure},
	{name: "malformed requests, insecure port", run: malformedInsecure, insecure: true},
	{name: "cross-site requests", run: crossSite, insecure: true},
}

// manyTerms returns a label selector of about so many bytes. Every object matches each term, so
// that all terms are evaluated.
func manyTerms(bytes, salt int) string {
	var b strings.Builder
	b.WriteString("labelSelector=")
	for i := 0; b.Len() < bytes; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "k%d-%d!=v", salt, i)
	}
	return b.String()
}

// manyValues returns a label selector of one term with many values, which no object has.
func manyValues(values int) string {
	var b strings.Builder
	b.WriteString("labelSelector=app+in+(")
	for i := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "none-%d", i)
	}
	return b.String() + ")"
}

const allConfigMaps = "/api/v1/configmaps?"

// garbageSelectors: the server must not look at anything for a token without an owner. Half of the
// clients leave before the answer.
func garbageSelectors(ctx context.Context, a *attacker) {
	c := a.client(fmt.Sprintf("garbage-%d", a.rng.Uint64()))
	defer c.close()
	a.every(ctx, 4, func() {
		uri := allConfigMaps + manyTerms(58_000, a.rng.IntN(10))
		switch a.rng.IntN(3) {
		case 0:
			uri += "&resourceVersion=0"
		case 1:
			uri += "&watch=1&resourceVersion=0"
		}
		most := 20 * time.Second
		if a.rng.IntN(2) == 0 {
			most = 50 * time.Millisecond
		}
		if a.ask(ctx, c, request{uri: uri}, most) == http.StatusOK {
			a.breach("a garbage token got 200")
		}
	})
}

// garbageCrowd: each connection has a token of its own, and none has an owner.
func garbageCrowd(ctx context.Context, a *attacker) {
	a.crowd(200, func(i int) {
		c := a.client(fmt.Sprintf("crowd-%d-%d", time.Now().UnixNano(), i))
		defer c.close()
		a.every(ctx, .1, func() {
			a.ask(ctx, c, request{uri: "/api/v1/namespaces/t0/configmaps?resourceVersion=0"}, 20*time.Second)
		})
	})
}

// anonymous: kube-apiserver answers some anonymous requests with GOAWAY.
func anonymous(ctx context.Context, a *attacker) {
	a.crowd(2, func(int) {
		c := a.client("")
		defer c.close()
		a.every(ctx, 29, func() { a.ask(ctx, c, request{uri: "/api/v1/nodes"}, 20*time.Second) })
	})
}

func unknownGroupsByStrangers(ctx context.Context, a *attacker) { unknownGroups(ctx, a, "stranger") }

func unknownGroupsByScanner(ctx context.Context, a *attacker) {
	unknownGroups(ctx, a, a.Hostile.Everything)
}

func unknownGroups(ctx context.Context, a *attacker, token string) {
	c := a.client(token)
	defer c.close()
	a.every(ctx, 20, func() {
		n := a.rng.IntN(1 << 20)
		uri := []string{
			fmt.Sprintf("/apis/g%d.example.org/v1/things", n), fmt.Sprintf("/apis/apps/v%d/deployments", n),
			fmt.Sprintf("/api/v1/things%d", n), fmt.Sprintf("/apis/g%d.example.org/v1/namespaces/t0/things?watch=1", n),
		}[a.rng.IntN(4)]
		a.ask(ctx, c, request{uri: uri}, 20*time.Second)
	})
}

// impersonation by a user without the right.
func impersonation(ctx context.Context, a *attacker) {
	c := a.mallory()
	defer c.close()
	headers := []http.Header{
		{"Impersonate-User": {"admin"}}, {"Impersonate-User": {"dev-admin"}, "Impersonate-Group": {"system:masters"}},
		{"Impersonate-Group": {"system:masters"}}, {"impersonate-user": {"system:serviceaccount:t0:app"}},
		{"Impersonate-Uid": {"1"}},
		{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
	}
	a.every(ctx, 20, func() {
		uri := []string{"/api/v1/secrets?resourceVersion=0", "/api/v1/namespaces/t0/configmaps?resourceVersion=0",
			"/api/v1/secrets?watch=1&timeoutSeconds=1"}[a.rng.IntN(3)]
		a.ask(ctx, c, request{uri: uri, header: headers[a.rng.IntN(len(headers))]}, 20*time.Second)
	})
}

// selectorFlood: each update of the attacker's ConfigMap is compared with 60 selectors that are
// slow to evaluate.
func selectorFlood(ctx context.Context, a *attacker) {
	uri := "/api/v1/namespaces/" + a.namespace() + "/configmaps"
	a.crowd(61, func(i int) {
		c := a.mallory()
		defer c.close()
		if i > 0 {
			watch := request{uri: uri + "?watch=1&timeoutSeconds=60&" + manyTerms(54_000, i)}
			a.every(ctx, .2, func() { a.ask(ctx, c, watch, longestRound) })
			return
		}
		n := 0
		a.every(ctx, 20, func() {
			n++
			a.ask(ctx, c, request{method: http.MethodPatch, uri: uri + "/cm-0",
				contentType: "application/merge-patch+json",
				body:        fmt.Sprintf(`{"data":{"n":"%d"}}`, n)}, 20*time.Second)
		})
	})
}

// selectiveJoins: initial events and lists that search the whole collection and find nothing.
func selectiveJoins(ctx context.Context, a *attacker) {
	c := a.client(a.Hostile.Crawler)
	defer c.close()
	a.every(ctx, 5, func() {
		uri := allConfigMaps + manyValues(500) + "&resourceVersion=0"
		if a.rng.IntN(2) == 0 {
			uri += "&watch=1&timeoutSeconds=1"
		}
		a.ask(ctx, c, request{uri: uri}, 20*time.Second)
	})
}

// replays: watches from the beginning of history that match nothing.
func replays(ctx context.Context, a *attacker) {
	c := a.client(a.Hostile.Crawler)
	defer c.close()
	a.every(ctx, 5, func() {
		a.ask(ctx, c, request{uri: allConfigMaps + manyValues(100) + "&watch=1&timeoutSeconds=1&resourceVersion=" +
			a.OldVersion}, 20*time.Second)
	})
}

// watchChurn opens watches and leaves.
func watchChurn(ctx context.Context, a *attacker) {
	c := a.mallory()
	defer c.close()
	a.every(ctx, 20, func() {
		a.ask(ctx, c, request{uri: "/api/v1/namespaces/" + a.namespace() + "/configmaps?watch=1&resourceVersion=0"},
			20*time.Millisecond)
	})
}

// manyWatches holds as many watches as one user gets.
func manyWatches(ctx context.Context, a *attacker) {
	a.crowd(300, func(int) {
		c := a.mallory()
		defer c.close()
		a.every(ctx, .1, func() {
			a.ask(ctx, c, request{uri: "/api/v1/namespaces/" + a.namespace() +
				"/configmaps?watch=1&timeoutSeconds=60&fieldSelector=metadata.name=none"}, longestRound)
		})
	})
}

// gzipLists: a controller's loop that lists everything.
func gzipLists(ctx context.Context, a *attacker) {
	c := a.client(a.Hostile.Crawler)
	defer c.close()
	a.every(ctx, 1, func() {
		resource := []string{"configmaps", "configmaps", "pods"}[a.rng.IntN(3)]
		// Nobody has had this list compressed before.
		uri := fmt.Sprintf("/api/v1/%s?resourceVersion=0&labelSelector=app!=none-%d", resource, a.rng.Uint32())
		a.ask(ctx, c, request{uri: uri, gzip: true}, 20*time.Second)
	})
}

// coldLanes: 30 lists at once of a resource that nobody else reads, in every form.
func coldLanes(ctx context.Context, a *attacker) {
	c := a.client(a.Hostile.Everything)
	defer c.close()
	resources := []string{"/api/v1/services", "/api/v1/endpoints", "/api/v1/serviceaccounts",
		"/apis/apps/v1/deployments", "/apis/batch/v1/jobs", "/api/v1/events",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/rolebindings", "/apis/coordination.k8s.io/v1/leases"}
	forms := []string{"application/json", protobufType,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
	a.every(ctx, .5, func() {
		r := request{uri: resources[a.rng.IntN(len(resources))] + "?resourceVersion=0",
			accept: forms[a.rng.IntN(len(forms))]}
		a.crowd(30, func(int) { a.ask(ctx, c, r, 20*time.Second) })
	})
}

// passedThrough: reads that only kube-apiserver can answer.
func passedThrough(ctx context.Context, a *attacker) {
	c := a.mallory()
	defer c.close()
	a.every(ctx, 5, func() {
		a.ask(ctx, c, request{uri: "/api/v1/namespaces/" + a.namespace() + "/configmaps?limit=50",
			accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}, 20*time.Second)
	})
}
