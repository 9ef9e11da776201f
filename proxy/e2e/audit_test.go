//testlint:allow timeout the log of a whole watch is compared

package e2e_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
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

// user returns the name in a field of an event.
func user(event map[string]any, field string) string {
	user, _ := event[field].(map[string]any)
	name, _ := user["username"].(string)
	return name
}

// auditClient is a client, straight at kube-apiserver and through watchfan.
type auditClient struct{ theirs, ours *target }

// auditRequest is a request that is sent both ways, or only through watchfan.
type auditRequest struct {
	auditClient
	row
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
	resp, err := way.try(cmp.Or(r.method, http.MethodGet), r.uri, header, r.body)
	if got := resp.header.Get("Audit-Id"); err != nil || got != id {
		t.Errorf("%s: %v, Audit-Id is %q, want %q", r.uri, err, got, id)
	}
	return resp.status
}

// auditTest is a cluster and a watchfan, both with an audit log, and what is sent.
type auditTest struct {
	cluster          *cluster
	proxy            *watchfan
	theirLog, ourLog string // files
	agent, plain     auditClient

	reads   []auditRequest // served from a cache
	refused []auditRequest // by watchfan and by kube-apiserver
	passed  []auditRequest // passed through
	named   []auditRequest // passed through in the name of a certificate's user
	unnamed string         // auditID of a read without one
}

const auditedPath = "/api/v1/namespaces/audited"

// TestAudit: for each read that it serves, watchfan writes what kube-apiserver writes for the same
// read. Neither writes the other's reads. A request that is passed through for the user of a certificate is
// in both logs under one auditID, and watchfan's has the client's own name, whoever the client acts as.
func TestAudit(t *testing.T) {
	needsPlain(t)
	parallel(t)
	s := &auditTest{ourLog: filepath.Join(t.TempDir(), "log")}
	s.cluster, s.theirLog = auditedCluster(t, metadataPolicy)
	s.proxy = privateWatchfan(t, s.cluster, "--audit-log-path", s.ourLog,
		"--exclude=serviceaccounts", "--anonymous-auth=false", "--client-ca-file", s.cluster.authority(t).File,
		"--authorization-recheck-interval=1s", "--authorization-webhook-cache-authorized-ttl=1s",
		"--authorization-webhook-cache-unauthorized-ttl=0s")
	s.proxy.waitReady(t)
	s.makeRequests(t)
	s.sendAll(t)
	s.stop(t)
	ours, theirs := auditEvents(t, s.ourLog), auditEvents(t, s.theirLog)
	s.checkReads(t, ours, theirs)
	s.checkRefused(t, ours, theirs)
	s.checkPassed(t, ours, theirs)
	s.checkRest(t, ours)
}

// makeRequests makes the objects, the clients, the rights of the clients, and the requests.
func (s *auditTest) makeRequests(t *testing.T) {
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
	s.plain = auditClient{direct, s.proxy.plain(t)}
	s.agent = token(serviceAccountToken(t, direct, "audited", "agent"))
	looker, jane := certificate("looker", "lookers <all>"), certificate("jane", "system:masters")
	warm(t, []*target{s.agent.ours, looker.ours}, auditedPath+"/configmaps")
	reader, admin, bad := token(s.cluster.token(t, "reader")), token(s.cluster.token(t, "admin")), token("bad")
	nobody := auditClient{bad.theirs, s.proxy.secure(t, "")}

	add := func(to *[]auditRequest, c auditClient, uri string, headers ...string) {
		*to = append(*to, auditRequest{c, row{uri: uri}.with(headers...)})
	}
	const list, watch = auditedPath + "/configmaps?resourceVersion=0", auditedPath + "/configmaps?watch=1&timeoutSeconds=1"
	add(&s.reads, reader, list)
	add(&s.reads, reader, "/api/v1/configmaps?resourceVersion=0&labelSelector=a%3Db,c!%3Dd&limit=500")
	add(&s.reads, reader, list+"&fieldSelector=metadata.name%3Dx")
	for _, c := range []auditClient{reader, s.agent, looker} {
		add(&s.reads, c, auditedPath+"/configmaps/x?resourceVersion=0")
		add(&s.reads, c, list)
		add(&s.reads, c, watch+"&resourceVersion=0")
	}
	add(&s.reads, reader, auditedPath+"/configmaps/nosuch?resourceVersion=0")
	add(&s.reads, reader, auditedPath+"?resourceVersion=0")
	add(&s.reads, reader, watch)
	add(&s.reads, reader, watch+"&resourceVersion=1")
	add(&s.reads, reader, "/api/v1/watch/namespaces/audited/configmaps/x?timeoutSeconds=1")
	add(&s.reads, reader, "/apis/apps/v1/deployments?resourceVersion=0")
	add(&s.reads, reader, list, "X-Forwarded-For", "10.1.2.3, nonsense, fd00::1", "X-Real-Ip", "10.1.2.4")
	add(&s.reads, reader, list, "X-Forwarded-For", "10.1.2.3, 127.0.0.1", "X-Real-Ip", "10.1.2.3")
	add(&s.reads, reader, list, "User-Agent", strings.Repeat("<long>", 200))
	add(&s.reads, reader, list+"&access_token=1", "Accept", protoType)
	add(&s.reads, admin, auditedPath+"/secrets?resourceVersion=0")
	add(&s.reads, s.plain, auditedPath+"/configmaps/x?resourceVersion=0")
	add(&s.reads, reader, watch+"&resourceVersion=0", "Upgrade", "websocket", "Origin", "https://pages.example")
	add(&s.reads, reader, watch+"&resourceVersion=0", "Upgrade", "websocket", "Origin", "https://pages.example",
		"Sec-Websocket-Protocol", "v1, "+proxytest.BearerProtocol(reader.ours.token))
	add(&s.reads, reader, auditedPath+"/configmaps?watch=1&resourceVersion=0", "Upgrade", "websocket") // refused without an Origin

	for _, uri := range []string{list, auditedPath + "/configmaps?watch=1", "/version"} {
		add(&s.refused, nobody, uri)
	}
	add(&s.refused, bad, list) // by its review
	add(&s.refused, looker, list, "Impersonate-User", "joe")

	add(&s.passed, reader, auditedPath+"/secrets")                                          // 403
	add(&s.passed, s.plain, auditedPath+"/secrets?resourceVersion=0")                       // with watchfan's own rights
	add(&s.passed, reader, auditedPath+"/serviceaccounts?resourceVersion=0")                // excluded
	add(&s.passed, admin, auditedPath+"/serviceaccounts?watch=1&timeoutSeconds=1")          // excluded
	add(&s.passed, reader, auditedPath+"/configmaps", "Accept", "text/nosuch")              // 406
	add(&s.passed, admin, list, "Impersonate-User", "jane", "Impersonate-Group", "masters") // 403
	for _, as := range [][]string{nil, {"Impersonate-User", "joe", "Impersonate-Group", "system:masters"}} {
		add(&s.named, jane, auditedPath+"/serviceaccounts/nosuch", as...)
		add(&s.named, jane, auditedPath+"/serviceaccounts?watch=1&timeoutSeconds=1", as...)
		s.named = append(s.named, auditRequest{jane, row{method: http.MethodPost, uri: auditedPath + "/configmaps",
			body: `{"metadata":{"name":"made"}}`}.with(as...)}) // one of them gets 409
	}
}

// sendAll sends every request, each with an Audit-Id that says which it is. Then it opens a watch and takes its client's
// right away.
func (s *auditTest) sendAll(t *testing.T) {
	t.Helper()
	// A get is only served from a cache if the objects are cached already.
	s.plain.ours.get(t, "/api/v1/namespaces?resourceVersion=0")
	both := func(r auditRequest, id string) {
		want, got := r.send(t, r.theirs, "theirs-"+id), r.send(t, r.ours, id)
		if got != want {
			t.Errorf("%s: %d, kube-apiserver says %d", r.uri, got, want)
		}
	}
	for i, r := range s.refused { // one by one: a read whose review fails among many passes through
		both(r, fmt.Sprint("refused-", i))
	}
	var sending sync.WaitGroup
	for i, r := range s.reads {
		sending.Go(func() { both(r, fmt.Sprint("reads-", i)) })
	}
	for name, requests := range map[string][]auditRequest{"passed-": s.passed, "named-": s.named} {
		for i, r := range requests {
			sending.Go(func() { r.send(t, r.ours, fmt.Sprint(name, i)) })
		}
	}
	sending.Wait()
	s.unnamed = s.plain.ours.get(t, auditedPath+"/configmaps?resourceVersion=0").header.Get("Audit-Id")
	open := s.agent.ours.watch(t, auditedPath+"/configmaps?watch=1&resourceVersion=0&timeoutSeconds=600")
	s.plain.theirs.remove(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/audited/rolebindings/r")
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
			id := fmt.Sprint("reads-", i, " ", stage)
			got, want := ours[id], theirs["theirs-"+id]
			if theirs[id] != nil {
				t.Errorf("%s: kube-apiserver has seen it", r.uri)
			}
			because := annotation(got, "watchfan.io/ended-because")
			ended := stage == "ResponseComplete" && len(stages) == 2
			left := because == "client_gone" && r.header.Get("Origin") == ""
			if ended != (because == "timeout" || because == "expired" || left) || !ended && because != "" {
				t.Errorf("%s %s: ended because %q", r.uri, stage, because)
			}
			if r.auditClient == s.plain {
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
		`RBAC: allowed by RoleBinding "r/audited" of Role "r" to ServiceAccount "agent/audited"`,
		`RBAC: allowed by RoleBinding "look/audited" of Role "look" to Group "lookers <all>"`,
	} {
		if reasons[reason] < 3 {
			t.Errorf("%d reads were allowed because %s; of all there are %v", reasons[reason], reason, reasons)
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
			id := fmt.Sprint("refused-", i, " ", stage)
			if theirs[id] != nil {
				t.Errorf("%s: kube-apiserver has seen it", r.uri)
			}
			got, want := ours[id], theirs["theirs-"+id]
			// Since 1.36 kube-apiserver also asks about kinds of impersonation that watchfan
			// doesn't know.
			for _, event := range []map[string]any{got, want} {
				if status, ok := event["responseStatus"].(map[string]any); ok && len(r.header) > 0 {
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

// checkPassed: only kube-apiserver writes events of requests that are passed through, except in the name of a
// certificate's user.
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
	for i, r := range s.named {
		id, as := fmt.Sprint("named-", i, " ResponseComplete"), r.header.Get("Impersonate-User")
		got, want := ours[id], theirs[id]
		code := func(event map[string]any) any { return event["responseStatus"].(map[string]any)["code"] }
		if user(got, "user") != "jane" || user(got, "impersonatedUser") != as ||
			user(want, "user") == "jane" || user(want, "impersonatedUser") != cmp.Or(as, "jane") ||
			got["verb"] != want["verb"] || got["requestURI"] != want["requestURI"] || code(got) != code(want) {
			t.Errorf("%s %s as %q:\n got %v\nkube-apiserver's is %v", r.method, r.uri, as, got, want)
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
		strings.Contains(string(content), s.agent.ours.token) || strings.Contains(string(content), "bearer.authorization") {
		t.Errorf("the audit log holds an object's content or a token, %v", err)
	}
}

// TestAuditLogFull: with a full disk, requests fail in the mode blocking-strict alone.
func TestAuditLogFull(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct, jane := c.direct(t), c.authority(t).client(t, "jane", "system:masters")
	const in = "/api/v1/namespaces/default/configmaps"
	for mode, fails := range map[string]bool{"batch": false, "blocking": false, "blocking-strict": true} {
		p := privateWatchfan(t, c, "--audit-log-path=/dev/full", "--audit-log-mode="+mode, "--client-ca-file", c.authority(t).File)
		p.waitReady(t)
		ours, _ := (&certified{cluster: c, proxy: p}).ways(t, jane)
		write := ours.do(t, http.MethodPost, in, nil, `{"metadata":{"name":"full-`+mode+`"}}`)
		list := ours.get(t, in+"?resourceVersion=0")
		watch := ours.get(t, in+"?watch=1&timeoutSeconds=1&resourceVersion=0")
		for _, resp := range []response{write, list, watch} {
			if failed := strings.Contains(string(resp.body), "failed to store audit event"); failed != fails || failed != (resp.status == 500) {
				t.Errorf("%s: %d %s", mode, resp.status, resp.body)
			}
		}
		if missing := direct.get(t, in+"/full-"+mode).status == http.StatusNotFound; missing != fails {
			t.Errorf("%s: the object is missing: %v", mode, missing)
		}
	}
}
