//testlint:allow timeout the log of a whole watch is compared

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// metadataPolicy has the level of watchfan's own log. It leaves out the stage that kube-apiserver's
// recommended policy leaves out.
const metadataPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],` +
	`"rules":[{"level":"Metadata"}]}`

// auditedCluster starts a cluster whose kube-apiserver writes an audit log with a policy.
func auditedCluster(t *testing.T, policy string) (c *cluster, log string) {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "policy"), filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--apiserver-arg", "audit-policy-file=" + file, "--apiserver-arg", "audit-log-path=" + log},
		endWatches...)
	return privateCluster(t, args...), log
}

// auditEvents returns the events of an audit log by auditID and stage.
func auditEvents(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events := make(map[string]map[string]any)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event map[string]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v: %s", path, err, lines.Bytes())
		}
		key := fmt.Sprint(event["auditID"], " ", event["stage"])
		if events[key] != nil && !strings.Contains(key, "-") { // kube-apiserver's requests to itself
			continue
		}
		if events[key] != nil {
			t.Errorf("%s: %s comes twice", path, key)
		}
		events[key] = event
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
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
	if got == nil || want == nil {
		t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	annotations, _ := want["annotations"].(map[string]any)
	for key := range annotations { // kube-apiserver adds some where a request took more than 500 ms
		if strings.HasPrefix(key, "apiserver.latency.k8s.io/") {
			delete(annotations, key)
		}
	}
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
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// The namespace that TestAudit reads, and its rights.
const (
	auditedPath  = "/api/v1/namespaces/audited"
	auditedRoles = "/apis/rbac.authorization.k8s.io/v1/namespaces/audited/"
)

// auditTest is a cluster and a watchfan, both with an audit log, and clients that read both ways.
type auditTest struct {
	cluster          *cluster
	proxy            *watchfan
	theirLog, ourLog string // files

	direct, ourAdmin  *target // the admin
	plain             *target // the insecure port
	reader, ourReader *target
	agent, ourAgent   *target // a service account
	looker, ourLooker *target // a certificate's user

	reads   []auditRequest // served from a cache
	passed  []auditRequest // passed through
	refused []auditRequest // by watchfan and by kube-apiserver
	unnamed string         // auditID of a read without one
}

// auditRequest is a GET that is sent both ways. theirs is nil if it is only sent through watchfan.
type auditRequest struct {
	theirs, ours *target
	uri          string
	header       http.Header
}

// TestAudit: for each read that it serves, watchfan writes what kube-apiserver writes for the same
// read. Neither writes the other's reads.
func TestAudit(t *testing.T) {
	needsPlain(t)
	parallel(t)
	s := newAuditTest(t)
	s.makeClients(t)
	s.makeRequests(t)
	s.sendAll(t)
	s.revoke(t)
	s.stop(t)
	ours, theirs := auditEvents(t, s.ourLog), auditEvents(t, s.theirLog)
	s.checkReads(t, ours, theirs)
	s.checkPassed(t, ours, theirs)
	s.checkRefused(t, ours, theirs)
	s.checkRest(t, ours)
}

func newAuditTest(t *testing.T) *auditTest {
	t.Helper()
	s := &auditTest{ourLog: filepath.Join(t.TempDir(), "log")}
	s.cluster, s.theirLog = auditedCluster(t, metadataPolicy)
	s.proxy = privateWatchfan(t, s.cluster, "--audit-log-path", s.ourLog,
		"--exclude=serviceaccounts", "--anonymous-auth=false", "--client-ca-file", s.cluster.authority(t).File,
		"--authorization-recheck-interval=1s", "--authorization-webhook-cache-authorized-ttl=1s",
		"--authorization-webhook-cache-unauthorized-ttl=0s")
	s.proxy.waitReady(t)
	return s
}

// makeClients makes the objects, the clients, and the rights of the clients.
func (s *auditTest) makeClients(t *testing.T) {
	t.Helper()
	s.direct, s.plain = s.cluster.direct(t), s.proxy.plain(t)
	createNamespaces(t, s.direct, "audited")
	s.direct.create(t, auditedPath+"/configmaps",
		`{"metadata":{"name":"x","labels":{"a":"b"}},"data":{"password":"hunter2"}}`)
	s.direct.create(t, auditedPath+"/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"hunter2"}}`)
	s.direct.create(t, auditedPath+"/serviceaccounts", `{"metadata":{"name":"agent"}}`)
	s.direct.create(t, auditedRoles+"roles",
		`{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["configmaps"],`+
			`"verbs":["get","list","watch"]}]}`)
	s.direct.create(t, auditedRoles+"rolebindings",
		`{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},`+
			`"subjects":[{"kind":"ServiceAccount","name":"agent","namespace":"audited"}]}`)
	s.direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"look"},"rules":[{"apiGroups":[""],"resources":["configmaps"],`+
			`"verbs":["get","list","watch"]}]}`)
	s.direct.create(t, auditedRoles+"rolebindings",
		`{"metadata":{"name":"lookers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",`+
			`"name":"look"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group",`+
			`"name":"lookers <all>"}]}`)
	var issued struct{ Status struct{ Token string } }
	if err := json.Unmarshal(s.direct.do(t, http.MethodPost, auditedPath+"/serviceaccounts/agent/token", nil,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`).body, &issued); err != nil {
		t.Fatal(err)
	}
	s.agent = s.cluster.as(t, "")
	s.agent.token = issued.Status.Token
	s.ourAgent = s.proxy.secure(t, s.agent.token)
	certificate := s.cluster.authority(t).client(t, "jane", "lookers <all>")
	s.ourLooker, s.looker = (&certified{cluster: s.cluster, proxy: s.proxy}).ways(t, certificate)
	for _, way := range []*target{s.ourAgent, s.ourLooker} {
		steady.Until(t, "client's rights", func() error {
			if resp := way.get(t, auditedPath+"/configmaps?resourceVersion=0"); resp.status != http.StatusOK {
				return fmt.Errorf("%d", resp.status)
			}
			return nil
		})
	}
	s.reader, s.ourReader = s.cluster.as(t, "reader"), s.proxy.secure(t, s.cluster.token(t, "reader"))
	s.ourAdmin = s.proxy.secure(t, s.cluster.token(t, "admin"))
}

func (s *auditTest) makeRequests(t *testing.T) {
	t.Helper()
	s.reads = []auditRequest{
		{s.reader, s.ourReader, auditedPath + "/configmaps?resourceVersion=0", nil},
		{s.reader, s.ourReader, "/api/v1/configmaps?resourceVersion=0&labelSelector=a%3Db,c!%3Dd&limit=500", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps?fieldSelector=metadata.name%3Dx&resourceVersion=0", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps/x?resourceVersion=0", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps/nosuch?resourceVersion=0", nil},
		{s.reader, s.ourReader, "/api/v1/namespaces/audited?resourceVersion=0", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps?watch=1&timeoutSeconds=1", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion=1", nil},
		{s.reader, s.ourReader, "/api/v1/watch/namespaces/audited/configmaps/x?timeoutSeconds=1", nil},
		{s.reader, s.ourReader, "/apis/apps/v1/deployments?resourceVersion=0", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps?resourceVersion=0",
			http.Header{"X-Forwarded-For": {"10.1.2.3, nonsense, fd00::1"}, "X-Real-Ip": {"10.1.2.4"}}},
		{s.reader, s.ourReader, auditedPath + "/configmaps?resourceVersion=0",
			http.Header{"X-Forwarded-For": {"10.1.2.3, 127.0.0.1"}, "X-Real-Ip": {"10.1.2.3"}}},
		{s.reader, s.ourReader, auditedPath + "/configmaps?resourceVersion=0",
			http.Header{"User-Agent": {strings.Repeat("<long>", 200)}}},
		{s.reader, s.ourReader, auditedPath + "/configmaps?resourceVersion=0&access_token=1",
			http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}}},
		{s.direct, s.ourAdmin, auditedPath + "/secrets?resourceVersion=0", nil},
		{s.direct, s.plain, auditedPath + "/configmaps/x?resourceVersion=0", nil},
		{s.agent, s.ourAgent, auditedPath + "/configmaps?resourceVersion=0", nil},
		{s.agent, s.ourAgent, auditedPath + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0", nil},
		{s.looker, s.ourLooker, auditedPath + "/configmaps?resourceVersion=0", nil},
		{s.looker, s.ourLooker, auditedPath + "/configmaps/x?resourceVersion=0", nil},
		{s.looker, s.ourLooker, auditedPath + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0", nil},
		{s.reader, s.ourReader, auditedPath + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0",
			http.Header{"Upgrade": {"websocket"}, "Origin": {"https://pages.example"}}},
		{s.reader, s.ourReader, auditedPath + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0",
			http.Header{"Upgrade": {"websocket"}, "Origin": {"https://pages.example"},
				"Sec-Websocket-Protocol": {"v1, " + proxytest.BearerProtocol(s.reader.token)}}},
		{s.reader, s.ourReader, auditedPath + "/configmaps?watch=1&resourceVersion=0",
			http.Header{"Upgrade": {"websocket"}}}, // refused without an Origin
	}
	bad, ourBad := s.cluster.as(t, ""), s.proxy.secure(t, "")
	bad.token = "bad"
	s.refused = []auditRequest{
		{bad, ourBad, auditedPath + "/configmaps?resourceVersion=0", nil},
		{bad, ourBad, auditedPath + "/configmaps?watch=1", nil},
		{bad, ourBad, "/version", nil},
		{bad, s.proxy.secure(t, "bad"), auditedPath + "/configmaps?resourceVersion=0", nil}, // by its review
		{s.looker, s.ourLooker, auditedPath + "/configmaps?resourceVersion=0",
			http.Header{"Impersonate-User": {"joe"}}},
	}
	s.passed = []auditRequest{
		{nil, s.ourReader, auditedPath + "/secrets", nil}, // 403
		// With watchfan's own rights.
		{nil, s.plain, auditedPath + "/secrets?resourceVersion=0", nil},
		{nil, s.ourReader, auditedPath + "/serviceaccounts?resourceVersion=0", nil},             // excluded
		{nil, s.ourAdmin, auditedPath + "/serviceaccounts?watch=1&timeoutSeconds=1", nil},       // excluded
		{nil, s.ourReader, auditedPath + "/configmaps", http.Header{"Accept": {"text/nosuch"}}}, // 406
		{nil, s.ourAdmin, auditedPath + "/configmaps?resourceVersion=0",
			http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"system:masters"}}},
	}
}

// sendAll sends every request, each with an Audit-Id that says which it is.
func (s *auditTest) sendAll(t *testing.T) {
	t.Helper()
	// A get is only served from a cache if the objects are cached already.
	s.ourReader.get(t, "/api/v1/namespaces?resourceVersion=0")
	var sending sync.WaitGroup
	both := func(r auditRequest, theirs, ours string) {
		sending.Go(func() {
			want, got := r.send(t, r.theirs, theirs), r.send(t, r.ours, ours)
			if got.status != want.status {
				t.Errorf("%s: %d, kube-apiserver says %d", r.uri, got.status, want.status)
			}
		})
	}
	for i, r := range s.reads {
		both(r, fmt.Sprint("theirs-", i), fmt.Sprint("ours-", i))
	}
	for i, r := range s.refused {
		both(r, fmt.Sprint("refusal-", i), fmt.Sprint("refused-", i))
	}
	for i, r := range s.passed {
		sending.Go(func() { r.send(t, r.ours, fmt.Sprint("passed-", i)) })
	}
	sending.Wait()
	s.unnamed = s.ourReader.get(t, auditedPath+"/configmaps?resourceVersion=0").header.Get("Audit-Id")
}

func (r auditRequest) send(t *testing.T, way *target, id string) response {
	t.Helper()
	header := http.Header{"Audit-Id": {id}}
	for name, values := range r.header {
		header[name] = values
	}
	if header.Get("Upgrade") != "" { // to which no answer has an Audit-Id
		status, err := way.converse(r.uri, header)
		if err != nil {
			t.Errorf("%s over WebSocket: %v", r.uri, err)
		}
		return response{status: status}
	}
	resp, err := way.try(http.MethodGet, r.uri, header, "")
	if err != nil {
		t.Errorf("%s: %v", r.uri, err)
	}
	if got := resp.header.Get("Audit-Id"); got != id {
		t.Errorf("%s: Audit-Id is %q, want %q", r.uri, got, id)
	}
	return resp
}

// revoke opens a watch and takes its client's right away.
func (s *auditTest) revoke(t *testing.T) {
	t.Helper()
	open := s.ourAgent.watch(t, auditedPath+"/configmaps?watch=1&resourceVersion=0&timeoutSeconds=600")
	s.direct.remove(t, auditedRoles+"rolebindings/b")
	open.finish(t)
	if n := s.proxy.admin(t).metric(t, "watchfan_watches_ended_total", `reason="revoked"`); n != 1 {
		t.Errorf("%v watches were revoked", n)
	}
}

// stop ends watchfan, which writes all events first.
func (s *auditTest) stop(t *testing.T) {
	t.Helper()
	if n := s.proxy.admin(t).metric(t, "watchfan_audit_events_dropped_total"); n != 0 {
		t.Errorf("%v events were dropped", n)
	}
	if err := s.proxy.stop(); err != nil {
		t.Fatal(err)
	}
	if log := proxytest.Tail(s.proxy.Log, 1000); !strings.Contains(log, "Revoked watches") ||
		!strings.Contains(log, "Excluded resources are never cached") {
		t.Errorf("the log does not say that a watch was revoked, or what is excluded:\n%s", log)
	}
}

// checkReads compares the events of each read that was served, and the reasons why they were
// allowed.
func (s *auditTest) checkReads(t *testing.T, ours, theirs map[string]map[string]any) {
	t.Helper()
	reasons := make(map[string]int)
	for i, r := range s.reads {
		stages := []string{"ResponseComplete"}
		if strings.Contains(r.uri, "watch") {
			stages = []string{"ResponseStarted", "ResponseComplete"}
		}
		for _, stage := range stages {
			got, want := ours[fmt.Sprint("ours-", i, " ", stage)], theirs[fmt.Sprint("theirs-", i, " ", stage)]
			if theirs[fmt.Sprint("ours-", i, " ", stage)] != nil {
				t.Errorf("%s: kube-apiserver has seen it", r.uri)
			}
			because := annotation(got, "watchfan.io/ended-because")
			ended := stage == "ResponseComplete" && len(stages) == 2
			left := because == "client_gone" && r.header.Get("Origin") == ""
			if ended != (because == "timeout" || because == "expired" || left) || !ended && because != "" {
				t.Errorf("%s %s: ended because %q", r.uri, stage, because)
			}
			if r.ours == s.plain {
				reason := annotation(got, "authorization.k8s.io/reason")
				if !strings.Contains(reason, "the proxy's own identity") {
					t.Errorf("%s through the insecure port: %q", r.uri, reason)
				}
				annotation(want, "authorization.k8s.io/reason")
			}
			sameEvent(t, r.uri+" "+stage, got, want)
			reasons[annotation(got, "authorization.k8s.io/reason")]++
		}
	}
	for _, reason := range []string{ // kube-apiserver's own, as the comparison has shown
		`RBAC: allowed by ClusterRoleBinding "devcluster:reader" of ClusterRole "devcluster:reader" ` +
			`to User "dev-reader"`,
		`RBAC: allowed by RoleBinding "b/audited" of Role "r" to ServiceAccount "agent/audited"`,
		`RBAC: allowed by RoleBinding "lookers/audited" of ClusterRole "look" to Group "lookers <all>"`,
	} {
		if reasons[reason] < 3 {
			t.Errorf("%d reads were allowed because %s; of all there are %v", reasons[reason], reason, reasons)
		}
	}
}

// checkPassed: only kube-apiserver writes events of requests that are passed through.
func (s *auditTest) checkPassed(t *testing.T, ours, theirs map[string]map[string]any) {
	t.Helper()
	for i, r := range s.passed {
		started, complete := fmt.Sprint("passed-", i, " ResponseStarted"), fmt.Sprint("passed-", i, " ResponseComplete")
		// A 401 has only one of them.
		if ours[started] != nil || ours[complete] != nil || theirs[started] == nil && theirs[complete] == nil {
			t.Errorf("%s is passed through: ours %v %v, theirs %v %v", r.uri, ours[started], ours[complete],
				theirs[started], theirs[complete])
		}
	}
}

// checkRefused: only watchfan writes events of requests that it refuses, and they are like
// kube-apiserver's.
func (s *auditTest) checkRefused(t *testing.T, ours, theirs map[string]map[string]any) {
	t.Helper()
	for i, r := range s.refused {
		lines := 0
		for _, stage := range []string{"ResponseStarted", "ResponseComplete"} {
			if theirs[fmt.Sprint("refused-", i, " ", stage)] != nil {
				t.Errorf("%s: kube-apiserver has seen it", r.uri)
			}
			got, want := ours[fmt.Sprint("refused-", i, " ", stage)], theirs[fmt.Sprint("refusal-", i, " ", stage)]
			// Since 1.36 kube-apiserver also asks about kinds of impersonation that watchfan
			// doesn't know.
			if r.header != nil {
				for _, event := range []map[string]any{got, want} {
					status, _ := event["responseStatus"].(map[string]any)
					delete(status, "message")
					delete(status, "details")
				}
			}
			if got != nil || want != nil {
				sameEvent(t, fmt.Sprint(r.uri, " refused ", stage), got, want)
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%s has %d lines, refused", r.uri, lines)
		}
	}
}

// checkRest checks the read without an auditID, the revoked watch, and that the log holds neither
// an object's content nor a token.
func (s *auditTest) checkRest(t *testing.T, ours map[string]map[string]any) {
	t.Helper()
	if s.unnamed == "" || ours[s.unnamed+" ResponseComplete"] == nil {
		t.Errorf("a request without an Audit-ID was told %q, and that is not in the log", s.unnamed)
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
		strings.Contains(string(content), s.agent.token) || strings.Contains(string(content), "bearer.authorization") {
		t.Errorf("the audit log holds an object's content or a token, %v", err)
	}
}
