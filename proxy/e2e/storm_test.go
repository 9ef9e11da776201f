package e2e_test

import (
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"
)

var (
	stormWatches = flag.Int("storm.watches", 1000,
		"watches of the reconnect storm, opened at once by 50 users; the long mode is 5000")
	stormTokens = flag.Int("storm.tokens", 100,
		"tokens of one service account in the reconnect storm, each with a watch; the long mode is 1000")
)

// TestReconnectStorm: when all clients connect at once, kube-apiserver gets one review for each
// user, however many watches the user has. It gets another one for each token, because only
// kube-apiserver knows the token's owner.
func TestReconnectStorm(t *testing.T) {
	needsPlain(t)
	const users = 50
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "storm")
	const accounts = "/api/v1/namespaces/storm/serviceaccounts"
	tokens := make([]string, users)
	for i := range tokens {
		tokens[i] = serviceAccountToken(t, direct, "storm", fmt.Sprintf("user-%d", i))
	}
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/storm/"
	direct.create(t, roles+"roles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"watch"},`+
			`"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["watch"]}]}`)
	direct.create(t, roles+"rolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"watch"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"watch"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group",`+
			`"name":"system:serviceaccounts:storm"}]}`)
	makeConfigMap(t, direct, "storm", "x", "")
	const uri = "/api/v1/namespaces/storm/configmaps?watch=1&resourceVersion=0&timeoutSeconds=600"
	eventually(t, 20*time.Second, "the right to watch", func() error {
		last := c.as(t, "")
		last.token = tokens[users-1]
		if r := last.get(t, "/api/v1/namespaces/storm/configmaps?watch=1&timeoutSeconds=1"); r.status != http.StatusOK {
			return fmt.Errorf("%d", r.status)
		}
		return nil
	})

	// storm opens n watches at once, with one token after the other. Each token is reviewed.
	storm := func(t *testing.T, n int, tokens []string) {
		p := privateWatchfan(t, c)
		p.waitReady(t)
		p.plain(t).get(t, "/api/v1/configmaps?resourceVersion=0")
		admin, way := p.admin(t), p.plain(t)
		asked, busy := selfReviews(t, direct), direct.metric(t, "process_cpu_seconds_total")
		begin := time.Now()
		watches := gatherFrom(t, n, func(i int) (*target, string) {
			as := *way
			as.token = tokens[i%len(tokens)]
			return &as, uri
		})
		took := time.Since(begin)
		busy = direct.metric(t, "process_cpu_seconds_total") - busy
		asked = selfReviews(t, direct) - asked
		reviews := admin.metric(t, "watchfan_access_reviews_total")
		t.Logf("%d watches with %d tokens opened in %s: %.0f reviews, kube-apiserver counts %.0f and took %.2f "+
			"s of CPU", n, len(tokens), took.Round(time.Millisecond), reviews, asked, busy)
		admin.awaitWatchers(t, n)
		// An answer is trusted for 10 s. If all this takes longer, there are more reviews.
		if least, most := len(tokens), len(tokens)*int(1+took/(10*time.Second)); reviews < float64(least) ||
			reviews > float64(most) {
			t.Errorf("%v reviews, want %d", reviews, least)
		}
		if asked < reviews || asked > reviews+users/2 { // some are others'
			t.Errorf("kube-apiserver counts %v reviews, watchfan %v", asked, reviews)
		}
		watches.leave()
	}
	t.Run("users", func(t *testing.T) { storm(t, *stormWatches, tokens) })
	t.Run("tokens of one user", func(t *testing.T) {
		many := make([]string, *stormTokens)
		for i := range many {
			many[i] = requestToken(t, direct, accounts+"/user-0")
		}
		storm(t, len(many), many)
	})
}

// selfReviews counts the SelfSubjectAccessReviews that kube-apiserver has answered.
func selfReviews(t *testing.T, direct *target) float64 {
	t.Helper()
	return direct.metric(t, "apiserver_request_total", `resource="selfsubjectaccessreviews"`)
}
