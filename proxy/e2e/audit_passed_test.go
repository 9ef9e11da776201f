//testlint:allow timeout the log of a whole watch is compared

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestAuditInSomebodysName: a request that is passed through for the user of a certificate is in
// both audit logs under one auditID. watchfan's log has the client's own name, whoever the client
// acts as.
func TestAuditInSomebodysName(t *testing.T) {
	parallel(t)
	c, theirLog := auditedCluster(t, metadataPolicy)
	ourLog := filepath.Join(t.TempDir(), "log")
	p := privateWatchfan(t, c, "--audit-log-path", ourLog, "--audit-log-mode=blocking-strict", "--exclude=secrets",
		"--client-ca-file", c.authority(t).File)
	p.waitReady(t)
	createNamespaces(t, c.direct(t), "audited")
	jane := c.authority(t).client(t, "jane", "system:masters")
	ours, _ := (&certified{cluster: c, proxy: p}).ways(t, jane)
	const in = "/api/v1/namespaces/audited"
	asJoe := http.Header{"Impersonate-User": {"joe"}, "Impersonate-Group": {"system:masters"}}
	admin := p.admin(t)
	steady.Until(t, "read from the cache", func() error {
		if ours.get(t, in+"/configmaps?resourceVersion=0"); admin.metric(t, "watchfan_cached_requests_total",
			`resource="configmaps"`) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	requests := []passedRequest{
		{"POST", in + "/configmaps", `{"metadata":{"name":"x"}}`, nil, "",
			[]string{"RequestReceived", "ResponseComplete"}, false},
		{"POST", in + "/configmaps", `{"metadata":{"name":"y"}}`, asJoe, "joe",
			[]string{"RequestReceived", "ResponseComplete"}, false},
		// The answer is 409.
		{"POST", in + "/configmaps", `{"metadata":{"name":"x"}}`, nil, "",
			[]string{"RequestReceived", "ResponseComplete"}, false},
		{"DELETE", in + "/configmaps/x", "", asJoe, "joe", []string{"RequestReceived", "ResponseComplete"}, false},
		{"GET", in + "/secrets/nosuch", "", nil, "", []string{"RequestReceived", "ResponseComplete"}, false},
		{"GET", in + "/secrets?watch=1&timeoutSeconds=1", "", nil, "",
			[]string{"RequestReceived", "ResponseStarted", "ResponseComplete"}, false},
		{"GET", in + "/secrets?watch=1&timeoutSeconds=1", "", asJoe, "joe",
			[]string{"RequestReceived", "ResponseStarted", "ResponseComplete"}, false},
		{"GET", in + "/configmaps?resourceVersion=0", "", asJoe, "joe",
			[]string{"RequestReceived", "ResponseComplete"}, false},
		{"GET", in + "/configmaps?resourceVersion=0", "", nil, "", []string{"ResponseComplete"}, true},
	}
	answers := make([]response, len(requests))
	for i, r := range requests {
		answers[i] = ours.do(t, r.method, r.uri, r.header, r.body)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	steady.Until(t, "kube-apiserver's log", func() error {
		if theirs := auditEvents(t, theirLog); theirs[answers[6].header.Get("Audit-Id")+" ResponseComplete"] == nil {
			return fmt.Errorf("it has %d lines", len(theirs))
		}
		return nil
	})
	our, their := auditEvents(t, ourLog), auditEvents(t, theirLog)
	for i, r := range requests {
		r.check(t, answers[i], our, their)
	}
}

// passedRequest is a request of jane's, and what both audit logs have of it.
type passedRequest struct {
	method, uri, body string
	header            http.Header
	as                string   // the user that jane acts as; "" is jane
	stages            []string // of the events
	cached            bool     // it is not passed through
}

// check compares the events of both logs with the request and its answer.
func (r passedRequest) check(t *testing.T, answer response, our, their map[string]map[string]any) {
	t.Helper()
	name := func(event map[string]any, field string) string {
		user, _ := event[field].(map[string]any)
		text, _ := user["username"].(string)
		return text
	}
	id := answer.header.Get("Audit-Id")
	for _, stage := range r.stages {
		got, want := our[id+" "+stage], their[id+" "+stage]
		what := fmt.Sprint(r.method, " ", r.uri, " ", stage)
		if name(got, "user") != "jane" || name(got, "impersonatedUser") != r.as {
			t.Errorf("%s: got %v", what, got)
			continue
		}
		if status, _ := got["responseStatus"].(map[string]any); stage != "RequestReceived" &&
			status["code"] != float64(answer.status) {
			t.Errorf("%s: the client was told %d: %v", what, answer.status, got)
		}
		if r.cached != (want == nil && stage == "ResponseComplete") && stage != "RequestReceived" {
			t.Errorf("%s: kube-apiserver's is %v", what, want)
		}
		if want == nil {
			continue
		}
		acted := r.as
		if acted == "" {
			acted = "jane"
		}
		if name(want, "impersonatedUser") != acted || name(want, "user") == "jane" {
			t.Errorf("%s: kube-apiserver's is %v", what, want)
		}
		for _, field := range []string{"verb", "requestURI"} {
			if got[field] != want[field] {
				t.Errorf("%s: %s is %v, want %v", what, field, got[field], want[field])
			}
		}
	}
	lines := 0
	for key := range our {
		if strings.HasPrefix(key, id+" ") {
			lines++
		}
	}
	if lines != len(r.stages) {
		t.Errorf("%s %s: %d lines, want %v", r.method, r.uri, lines, r.stages)
	}
}

// TestAuditLogFull: each mode does with a full disk what it promises.
func TestAuditLogFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	jane := c.authority(t).client(t, "jane", "system:masters")
	for _, mode := range []string{"batch", "blocking", "blocking-strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := privateWatchfan(t, c, "--audit-log-path=/dev/full", "--audit-log-mode="+mode,
				"--client-ca-file", c.authority(t).File)
			p.waitReady(t)
			ours, _ := (&certified{cluster: c, proxy: p}).ways(t, jane)
			want, wrote := http.StatusOK, http.StatusCreated
			if mode == "blocking-strict" {
				want, wrote = http.StatusInternalServerError, http.StatusInternalServerError
			}
			object := "full-" + mode
			const in = "/api/v1/namespaces/default/configmaps"
			write := ours.do(t, http.MethodPost, in, nil, `{"metadata":{"name":"`+object+`"}}`)
			list := ours.get(t, in+"?resourceVersion=0")
			watch := ours.get(t, in+"?watch=1&timeoutSeconds=1&resourceVersion=0")
			if write.status != wrote || list.status != want || watch.status != want {
				t.Errorf("a write got %d, a list %d, a watch %d", write.status, list.status, watch.status)
			}
			if exists := direct.get(t, in+"/"+object).status == http.StatusOK; exists != (wrote == http.StatusCreated) {
				t.Errorf("the object was written: %v", exists)
			}
			if mode == "blocking-strict" && !strings.Contains(string(watch.body), "failed to store audit event") {
				t.Errorf("%s", watch.body)
			}
			if wrote == http.StatusCreated {
				direct.remove(t, in+"/"+object)
			}
		})
	}
}
