package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// check tells a cluster that answers from one that does not, from a wrong kubeconfig, and from none.
func TestCheck(t *testing.T) {
	home, recommended := t.TempDir(), clientcmd.RecommendedHomeFile
	clientcmd.RecommendedHomeFile = filepath.Join(home, "none")
	defer func() { clientcmd.RecommendedHomeFile = recommended }()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a pod
	const rulesReviews = "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	answers := map[string]string{
		rulesReviews:   `{"status":{"incomplete":false}}`,
		"GET /version": `{"gitVersion":"v1.2.3"}`,
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews": `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice"}}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	kubeconfig := func(name, server string) string {
		name = filepath.Join(home, name)
		content := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\n" +
			"contexts: [{name: production, context: {cluster: c}}]\ncurrent-context: production\n"
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := kubeconfig("good", server.URL)
	f := func(wantCode exitCode, wantOut, wantErr string, args ...string) {
		t.Helper()
		code, stdout, stderr := try(t, append([]string{"check"}, args...)...)
		if code != int(wantCode) || stdout != wantOut || !strings.Contains(stderr, wantErr) || (wantErr == "") != (stderr == "") {
			t.Errorf("check %s: exit code %d\n%s%s\nwant %d\n%s%s", args, code, stdout, stderr, wantCode, wantOut, wantErr)
		}
	}
	head := "context: production\nserver:  " + server.URL + "\n"
	f(0, head+"version: v1.2.3\nuser:    alice\nacts as: itself alone\n", "", "--kubeconfig", good)
	t.Setenv("KUBECONFIG", good)
	f(0, head+"version: v1.2.3\nuser:    alice\nacts as: itself alone\n", "")
	acts := func(version, rules, want string) {
		t.Helper()
		answers["GET /version"] = `{"gitVersion":"` + version + `"}`
		answers[rulesReviews] = `{"status":{"resourceRules":[` + rules + `],"incomplete":false}}`
		want = strings.ReplaceAll(want, "\n", "\n         ")
		f(0, head+"version: "+version+"\nuser:    alice\nacts as: "+want+"\n", "")
	}
	rule := func(verb, group, resource, more string) string {
		return `{"verbs":["` + verb + `"],"apiGroups":["` + group + `"],"resources":["` + resource + `"]` + more + `}`
	}
	named := func(name string) string { return `,"resourceNames":["` + name + `"]` }
	const info, authentication, wider = "impersonate:user-info", "authentication.k8s.io", ": wider than needed"
	old := rule("impersonate", "", "users", "") + "," + rule("impersonate", "", "groups", named("system:nodes"))
	acts("v1.35.9", old, "any user (impersonate)\ngroup system:nodes (impersonate)")
	acts("v1.36.0", old, "any user (impersonate)"+wider+" from 1.36 on\n"+
		"group system:nodes (impersonate)"+wider+" from 1.36 on")
	acts("v1.36.0", rule(info, authentication, "users", named("alice")), "user alice ("+info+")")
	acts("v1.35.9", rule(info, authentication, "users", named("alice")),
		"user alice ("+info+"): kube-apiserver knows that verb from 1.36 on")
	acts("v1.37.2+k3s1", rule(info, authentication, "users", ""), "any user ("+info+")"+wider)
	acts("v1.36.0", rule("impersonate:arbitrary-node", authentication, "nodes", named("n1")),
		"node n1 (impersonate:arbitrary-node)\n"+
			"kubelets are refused: as n1, kube-apiserver sees the groups []: take the verb impersonate on users away")
	acts("v1.36.0", rule("*", "*", "*", ""), "anybody: it may do everything, which is wider than needed")
	delete(answers, rulesReviews)
	delete(answers, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews")
	f(0, head+"version: v1.36.0\nuser:    kube-apiserver does not say\nacts as: unknown: "+
		server.URL+" answers 404 Not Found to "+rulesReviews+"\n", "")
	answers["GET /version"] = `{"gitVersion":"\u001b[2J"}`
	f(0, head+"version: \ufffd[2J\nuser:    kube-apiserver does not say\nacts as: unknown: "+
		server.URL+" answers 404 Not Found to "+rulesReviews+"\n", "")
	answers["GET /version"] = "<html>"
	f(clusterSilent, head, "is no kube-apiserver: GET /version")
	delete(answers, "GET /version")
	f(clusterSilent, head, "answers 404 Not Found to GET /version")
	t.Setenv("KUBECONFIG", "")
	f(clusterSilent, "context: production\nserver:  http://127.0.0.1:1\n", "connection refused", "--kubeconfig", kubeconfig("dead", "http://127.0.0.1:1"))
	f(clusterWrong, "", "--context=b: ", "--kubeconfig", good, "--context", "b")
	f(clusterWrong, "", "no cluster is configured: --kubeconfig=/no/such does not exist", "--kubeconfig", "/no/such")
	f(clusterWrong, "", "unknown flag: --contxt: did you mean --context?", "--contxt=b")
	f(clusterNotNamed, "", "no cluster is configured: ~/.kube/config does not exist")
}
