package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// metadataPolicy has the level of watchfan's own log. It leaves out the stage that kube-apiserver's
// recommended policy leaves out.
const metadataPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],` +
	`"rules":[{"level":"Metadata"}]}`

// auditEvents returns the events of an audit log by auditID and stage.
func auditEvents(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	events := make(map[string]map[string]any)
	for line := range bytes.Lines(content) {
		var event map[string]any
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%s: %v: %s", path, err, line)
		}
		key := fmt.Sprint(event["auditID"], " ", event["stage"])
		if events[key] != nil && strings.Contains(key, "-") { // kube-apiserver's requests to itself have none
			t.Errorf("%s: %s comes twice", path, key)
		}
		events[key] = event
	}
	return events
}

// annotation removes one of an event's annotations and returns it.
func annotation(event map[string]any, key string) string {
	annotations, _ := event["annotations"].(map[string]any)
	value, _ := annotations[key].(string)
	delete(annotations, key)
	return value
}

// sameEvent compares an event with kube-apiserver's event of the same request. It removes and
// ignores the time and the auditID.
func sameEvent(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	annotations, _ := want["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(key string, _ any) bool { // of a request that took more than 500 ms
		return strings.HasPrefix(key, "apiserver.latency.k8s.io/")
	})
	for _, event := range []map[string]any{got, want} {
		for _, field := range []string{"requestReceivedTimestamp", "stageTimestamp"} {
			text, _ := event[field].(string)
			if _, err := time.Parse("2006-01-02T15:04:05.000000Z", text); err != nil {
				t.Errorf("%s: %s: %v", what, field, err)
			}
			delete(event, field)
		}
		delete(event, "auditID")
		if annotations, _ := event["annotations"].(map[string]any); len(annotations) == 0 {
			delete(event, "annotations")
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

// user returns the name in a field of an event.
func user(event map[string]any, field string) string {
	user, _ := event[field].(map[string]any)
	name, _ := user["username"].(string)
	return name
}

// auditClient is a client, straight at kube-apiserver and through watchfan.
type auditClient struct{ theirs, ours *target }

// auditRequest is a request of an auditClient.
type auditRequest struct {
	auditClient
	row
	outcome, auditID string
}

func (r auditRequest) send(t *testing.T, way *target, id string) (status int) {
	t.Helper()
	header := http.Header{"Audit-Id": {id}}
	maps.Copy(header, r.header)
	if header.Get("Upgrade") != "" { // to which no answer has an Audit-Id
		status, err := way.converse(r.uri, header)
		if err != nil {
			t.Errorf("%s over WebSocket: %v", r.uri, err)
		}
		return status
	}
	resp, err := way.try(r.method, r.uri, header, r.body)
	if got := resp.header.Get("Audit-Id"); err != nil || got != id {
		t.Errorf("%s: %v, Audit-Id is %q, want %q", r.uri, err, got, id)
	}
	return resp.status
}

// sendBoth also sends the request straight to kube-apiserver. The auditID is then another one.
func (r auditRequest) sendBoth(t *testing.T) {
	t.Helper()
	if want, got := r.send(t, r.theirs, "theirs-"+r.auditID), r.send(t, r.ours, r.auditID); got != want {
		t.Errorf("%s: %d, kube-apiserver says %d", r.uri, got, want)
	}
}

// auditTest is a cluster and a watchfan, both with an audit log, and what is sent.
type auditTest struct {
	cluster          *cluster
	proxy            *watchfan
	theirLog, ourLog string // files
	clients          map[string]auditClient
	requests         []auditRequest
	unnamed          []auditRequest            // reads and writes without an auditID of their own, with those of their answers
	reviewed         map[string]map[string]any // kube-apiserver's events of reviews, by auditID
}

const auditedPath = "/api/v1/namespaces/audited"

// TestAudit: for each read that it serves, watchfan writes what kube-apiserver writes for the same
// read. Neither writes the other's reads. A request that is passed through for the user of a certificate is
// in both logs under one auditID, and watchfan's has the client's own name, whoever the client acts as.
// A read from a cache names the reviews that allow it, which are in kube-apiserver's log under these auditIDs.
func TestAudit(t *testing.T) {
	needsPlain(t)
	parallel(t)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy")
	s := &auditTest{theirLog: filepath.Join(dir, "theirs"), ourLog: filepath.Join(dir, "ours")}
	if err := os.WriteFile(policy, []byte(metadataPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cluster = privateCluster(t, append([]string{"--apiserver-arg", "audit-policy-file=" + policy,
		"--apiserver-arg", "audit-log-path=" + s.theirLog}, endWatches...)...)
	s.proxy = privateWatchfan(t, s.cluster, "--audit-log-path", s.ourLog,
		"--exclude=serviceaccounts", "--anonymous-auth=false", "--client-ca-file", s.cluster.authority(t).File,
		"--authorization-recheck-interval=1s", "--authorization-webhook-cache-authorized-ttl=1s",
		"--authorization-webhook-cache-unauthorized-ttl=0s")
	s.proxy.waitReady(t)
	s.makeClients(t)
	for i, r := range requests(t, "audit", map[string]string{"BEARER": proxytest.BearerProtocol(s.clients["reader"].ours.token)}) {
		outcome, client, _ := strings.Cut(r.id, ":")
		r.method = cmp.Or(r.method, http.MethodGet)
		s.requests = append(s.requests, auditRequest{s.clients[client], r, outcome, fmt.Sprint(outcome, "-", i)})
	}
	s.sendAll(t)
	s.stop(t)
	s.check(t, auditEvents(t, s.ourLog), auditEvents(t, s.theirLog))
}

// makeClients makes the objects, the clients, and the clients' rights.
func (s *auditTest) makeClients(t *testing.T) {
	t.Helper()
	direct := s.cluster.direct(t)
	createNamespaces(t, direct, "audited")
	direct.create(t, auditedPath+"/configmaps", `{"metadata":{"name":"x","labels":{"a":"b"}},"data":{"password":"hunter2"}}`)
	direct.create(t, auditedPath+"/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"hunter2"}}`)
	direct.allow(t, "audited", "r", "ServiceAccount agent", "get,list,watch /configmaps")
	direct.allow(t, "audited", "look", "Group lookers <all>", "get,list,watch /configmaps")
	token := func(token string) auditClient {
		c := auditClient{s.cluster.as(t, ""), s.proxy.secure(t, token)}
		c.theirs.token = token
		return c
	}
	certificate := func(name, group string) (c auditClient) {
		c.ours, c.theirs = (&certified{cluster: s.cluster, proxy: s.proxy}).ways(t, s.cluster.authority(t).client(t, name, group))
		return c
	}
	s.clients = map[string]auditClient{
		"plain": {direct, s.proxy.plain(t)}, "admin": token(s.cluster.token(t, "admin")), "reader": token(s.cluster.token(t, "reader")),
		"agent": token(serviceAccountToken(t, direct, "audited", "agent")), "bad": token("bad"), "nobody": token(""),
		"looker": certificate("looker", "lookers <all>"), "jane": certificate("jane", "system:masters"),
	}
	s.clients["nobody"].theirs.token = "bad" // kube-apiserver knows anonymous users
	warm(t, []*target{s.clients["agent"].ours, s.clients["looker"].ours}, auditedPath+"/configmaps")
	// A get is only served from a cache if the objects are cached already.
	s.clients["plain"].ours.get(t, "/api/v1/namespaces?resourceVersion=0")
}

// sendAll sends every request, each with an Audit-Id that says which it is. Then it opens a watch and takes its client's
// right away.
func (s *auditTest) sendAll(t *testing.T) {
	t.Helper()
	var sending sync.WaitGroup
	for _, r := range s.requests {
		if r.outcome == "refused" { // one by one: a read whose review fails among many passes through
			r.sendBoth(t)
		}
	}
	for _, r := range s.requests {
		switch r.outcome {
		case "served":
			sending.Go(func() { r.sendBoth(t) })
		case "passed", "named":
			sending.Go(func() { r.send(t, r.ours, r.auditID) })
		}
	}
	sending.Wait()
	plain := s.clients["plain"]
	for outcome, client := range map[string]string{"served": "reader", "passed": "admin", "named": "jane"} {
		r := auditRequest{s.clients[client], row{uri: auditedPath + "/serviceaccounts"}, outcome, ""}
		if outcome == "served" {
			r.uri = auditedPath + "/configmaps?resourceVersion=0"
		}
		r.auditID = r.ours.get(t, r.uri).header.Get("Audit-Id")
		s.unnamed = append(s.unnamed, r)
	}
	open := s.clients["agent"].ours.watch(t, auditedPath+"/configmaps?watch=1&resourceVersion=0&timeoutSeconds=600")
	plain.theirs.remove(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/audited/rolebindings/r")
	open.finish(t)
}

// stop ends watchfan, which writes all events first.
func (s *auditTest) stop(t *testing.T) {
	t.Helper()
	admin := s.proxy.admin(t)
	if revoked, dropped := admin.metric(t, "watchfan_watches_ended_total", `reason="revoked"`),
		admin.metric(t, "watchfan_audit_events_dropped_total"); revoked != 1 || dropped != 0 {
		t.Errorf("%v watches were revoked, and %v events dropped", revoked, dropped)
	}
	if err := s.proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	if log := proxytest.Tail(s.proxy.Log, 1000); !strings.Contains(log, "Revoked watches") ||
		!strings.Contains(log, "Excluded resources are never cached") {
		t.Errorf("the log does not say that a watch was revoked, or what is excluded:\n%s", log)
	}
}

// check compares the events of each read that was served or refused with kube-apiserver's. What was passed through has
// only kube-apiserver's, unless it is in the name of a certificate's user.
func (s *auditTest) check(t *testing.T, ours, theirs map[string]map[string]any) {
	t.Helper()
	reasons := make(map[string]int)
	s.reviewed = make(map[string]map[string]any)
	for key, event := range theirs {
		id, _, _ := strings.Cut(key, " ")
		if uri := fmt.Sprint(event["requestURI"]); strings.HasPrefix(uri, "/apis/authorization.k8s.io/v1/") {
			s.reviewed[id] = event
		}
	}
	for _, r := range s.requests {
		what, lines := r.outcome+" "+r.uri, 0
		for _, stage := range []string{" ResponseStarted", " ResponseComplete"} {
			got, want, passed := ours[r.auditID+stage], theirs["theirs-"+r.auditID+stage], theirs[r.auditID+stage]
			switch {
			case r.outcome == "passed":
				if got != nil {
					t.Errorf("%s: watchfan has %v", what, got)
				}
				if passed != nil {
					lines++ // a 401 has only one
				}
			case r.outcome == "named":
				if stage == " ResponseComplete" {
					r.checkNamed(t, got, passed)
					lines++
				}
			case passed != nil:
				t.Errorf("%s: kube-apiserver has seen it", what)
			case got != nil || want != nil:
				lines++
				reasons[s.checkOwn(t, r, stage, got, want)]++
			}
		}
		if lines == 0 || r.outcome == "refused" && lines > 1 {
			t.Errorf("%s has %d lines", what, lines)
		}
	}
	for _, reason := range []string{ // kube-apiserver's own, as the comparison has shown
		`RBAC: allowed by ClusterRoleBinding "devcluster:reader" of ClusterRole "devcluster:reader" ` +
			`to User "dev-reader"`,
		`RBAC: allowed by RoleBinding "r/audited" of Role "r" to ServiceAccount "agent/audited"`,
		`RBAC: allowed by RoleBinding "look/audited" of Role "look" to Group "lookers <all>"`,
	} {
		if reasons[reason] < 3 {
			t.Errorf("%d reads were allowed because %s; of all there are %v", reasons[reason], reason, reasons)
		}
	}
	s.checkRest(t, ours, theirs)
}

// checkReviews: the event of a read has the auditIDs of the reviews that allow it, each of which kube-apiserver's log has,
// by the client itself if it has a token.
func (s *auditTest) checkReviews(t *testing.T, r auditRequest, event map[string]any) {
	t.Helper()
	ids := annotation(event, "watchfan.io/review-ids")
	if own := r.auditClient == s.clients["plain"]; (ids == "") != (own || r.outcome != "served") {
		t.Errorf("%s: the auditIDs of its reviews are %q", r.uri, ids)
	}
	for id := range strings.SplitSeq(ids, ",") {
		if review := s.reviewed[id]; ids != "" && (review == nil || r.ours.token != "" && user(review, "user") != user(event, "user")) {
			t.Errorf("%s: kube-apiserver's event of the review %s is %v", r.uri, id, review)
		}
	}
}

// checkOwn compares an event of watchfan's with kube-apiserver's, and returns why the request was allowed.
func (s *auditTest) checkOwn(t *testing.T, r auditRequest, stage string, got, want map[string]any) (reason string) {
	t.Helper()
	because := annotation(got, "watchfan.io/ended-because")
	ended := r.outcome == "served" && strings.Contains(r.uri, "watch") && stage == " ResponseComplete"
	left := because == "client_gone" && r.header.Get("Origin") == ""
	if ended != (because == "timeout" || because == "expired" || left) || !ended && because != "" {
		t.Errorf("%s%s: ended because %q", r.uri, stage, because)
	}
	s.checkReviews(t, r, got)
	reason = annotation(got, "authorization.k8s.io/reason")
	theirs := annotation(want, "authorization.k8s.io/reason")
	if own := strings.Contains(reason, "the proxy's own identity"); own != (r.auditClient == s.clients["plain"]) || !own && reason != theirs {
		t.Errorf("%s%s: allowed because %q, kube-apiserver says %q", r.uri, stage, reason, theirs)
	}
	for _, event := range []map[string]any{got, want} {
		// Since 1.36 kube-apiserver also asks about kinds of impersonation that watchfan doesn't know.
		if status, ok := event["responseStatus"].(map[string]any); ok && r.outcome == "refused" && len(r.header) > 0 {
			delete(status, "message")
			delete(status, "details")
		}
	}
	sameEvent(t, r.outcome+" "+r.uri+stage, got, want)
	return reason
}

// checkNamed: watchfan's event has the client's own name, whoever the client acts as.
func (r auditRequest) checkNamed(t *testing.T, got, want map[string]any) {
	t.Helper()
	as := r.header.Get("Impersonate-User")
	code := func(event map[string]any) any { return event["responseStatus"].(map[string]any)["code"] }
	if user(got, "user") != "jane" || user(got, "impersonatedUser") != as ||
		user(want, "user") == "jane" || user(want, "impersonatedUser") != cmp.Or(as, "jane") ||
		got["verb"] != want["verb"] || got["requestURI"] != want["requestURI"] || code(got) != code(want) {
		t.Errorf("%s %s as %q:\n got %v\nkube-apiserver's is %v", r.method, r.uri, as, got, want)
	}
}

// checkRest checks the requests without an auditID, the revoked watch, and that the log holds neither
// an object's content nor a token.
func (s *auditTest) checkRest(t *testing.T, ours, theirs map[string]map[string]any) {
	t.Helper()
	for _, r := range s.unnamed {
		key := r.auditID + " ResponseComplete"
		if here, there := ours[key] != nil, theirs[key] != nil; r.auditID == "" || here == (r.outcome == "passed") || there == (r.outcome == "served") {
			t.Errorf("a request that was %s without an Audit-ID was told %q; in watchfan's log: %v, in kube-apiserver's: %v",
				r.outcome, r.auditID, here, there)
		}
	}
	revoked := 0
	for _, event := range ours {
		if annotation(event, "watchfan.io/ended-because") != "revoked" {
			continue
		}
		revoked++
		why := annotation(event, "watchfan.io/revoked-because")
		if !strings.HasPrefix(why, "the client may no longer read") || event["stage"] != "ResponseComplete" {
			t.Errorf("the line of the revoked watch says %q: %v", why, event)
		}
	}
	if revoked != 1 {
		t.Errorf("%d watches were revoked by the audit log", revoked)
	}
	if content, err := os.ReadFile(s.ourLog); err != nil || strings.Contains(string(content), "hunter2") ||
		strings.Contains(string(content), s.clients["agent"].ours.token) || strings.Contains(string(content), "bearer.authorization") {
		t.Errorf("the audit log holds an object's content or a token, %v", err)
	}
}
