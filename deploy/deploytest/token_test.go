package deploytest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const kubeletValues = `{clientCertificates: {enabled: true, configMap: client-ca, impersonate: {nodes: ["*"]}}}`

// onNode is a pod of a node, and what it mounts.
const onNode = `
apiVersion: v1
kind: Pod
metadata: {name: p-%[1]s, namespace: apps}
spec:
  nodeName: %[1]s
  serviceAccountName: client
  containers: [{name: c, image: i}]
  volumes:
    - {name: s, secret: {secretName: s-%[1]s}}
    - {name: t, projected: {sources: [{serviceAccountToken: {path: token}}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: s-%[1]s, namespace: apps}
`

const podN1, tokens = "/api/v1/namespaces/apps/pods/p-n1", "/api/v1/namespaces/apps/serviceaccounts/client/token"

// TestTokenAlone: what the account's token allows at a real kube-apiserver is what the threat model
// says, with the chart's rights for kubelets. A kubelet needs no more. A thief of the token can be
// nobody but a node, and only for what kubelets do. A kubelet is served with the old rules too, and
// when they change.
func TestTokenAlone(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints)
	for _, node := range []string{"n1", "n2"} {
		c.must(t, fmt.Sprintf(onNode, node))
	}
	c.install(t, strings.Replace(kubeletValues, "nodes:", "unconstrained: true, nodes:", 1))
	w := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")
	t.Run("kubelet, old rules", func(t *testing.T) { w.checkKubelet(t, c, "n2") })
	c.upgrade(t, kubeletValues)
	steady.Until(t, "new rules", func() error {
		if code, body := w.get(t, secrets+"/s-n2"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	thief := rest.AnonymousClientConfig(c.config)
	thief.BearerToken = c.token(t, namespace, "watchfan")
	t.Run("document", func(t *testing.T) { c.checkTable(t, thief) })
	t.Run("kubelet", func(t *testing.T) { w.checkKubelet(t, c, "n1") })
	t.Run("thief", func(t *testing.T) { checkThief(t, thief) })
	t.Run("check", func(t *testing.T) {
		kubeconfig := clientcmdapi.NewConfig()
		kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: thief.Host, CertificateAuthority: c.Ready.CAFile}
		kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: thief.BearerToken}
		kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		kubeconfig.CurrentContext = "x"
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), binary(t, "watchfan"), "check", "--kubeconfig", file).CombinedOutput()
		if want := "\nacts as: any node (impersonate:arbitrary-node)\n"; err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("got %v, %s, want it to end with %s", err, out, want)
		}
	})
}

// TestTokenOfOldRules: with the rules for kube-apiservers before 1.36, who has the token alone may be any user by its
// name, for anything, and nothing more.
func TestTokenOfOldRules(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints)
	c.install(t, strings.Replace(kubeletValues, "nodes:", "unconstrained: true, nodes:", 1))
	thief := rest.AnonymousClientConfig(c.config)
	thief.BearerToken = c.token(t, namespace, "watchfan")
	client, err := rest.HTTPClientFor(thief)
	if err != nil {
		t.Fatal(err)
	}
	const controller, all = "system:kube-controller-manager", "/api/v1/secrets"
	steady.Until(t, "right to be another user", func() error { // kube-apiserver learns of rules a moment later
		if code, body := (call{controller, "", "GET", all, ""}).do(t, client, thief.Host); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for _, refused := range []call{
		{method: "GET", uri: all},
		{"kubernetes-admin", "system:masters", "GET", all, ""},
		{controller, "system:masters", "GET", all, ""},
		{"system:serviceaccount:kube-system:namespace-controller", "", "GET", all, ""},
	} {
		if code, body := refused.do(t, client, thief.Host); code != http.StatusForbidden {
			t.Errorf("%+v: %d %.300s", refused, code, body)
		}
	}
}

// checkTable: the table of deploy/ACCOUNT.md has all rights of a token that not every token has.
func (c *cluster) checkTable(t *testing.T, owner *rest.Config) {
	anyone := rest.AnonymousClientConfig(owner)
	anyone.BearerToken = c.token(t, "apps", "client")
	everyones := rightsOf(t, anyone)
	may := make(map[string]set) // by verb
	for right := range rightsOf(t, owner) {
		if verb, on, _ := strings.Cut(right, " "); !everyones[right] {
			if may[verb] == nil {
				may[verb] = make(set)
			}
			may[verb][on] = true
		}
	}
	cached, verbs := cachedResources(t), make(map[string][]string) // by what they are on
	for verb, on := range may {
		if on.has(cached) {
			maps.DeleteFunc(on, func(resource string, _ bool) bool { return cached[resource] })
			on["cache.resources"] = true
		}
		all := strings.Join(slices.Sorted(maps.Keys(on)), "`, `")
		verbs[all] = append(verbs[all], verb)
	}
	var rows []string
	for on, of := range verbs {
		slices.Sort(of)
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` |\n", strings.Join(of, "`, `"), on))
	}
	slices.Sort(rows)
	table := "| verbs | on |\n|---|---|\n" + strings.Join(rows, "")
	if !strings.Contains(readFile(t, "../ACCOUNT.md"), "\n"+table+"\n") {
		t.Errorf("deploy/ACCOUNT.md does not have\n%s", table)
	}
}

// rightsOf returns what the owner of a token may do at kube-apiserver, as rights does.
func rightsOf(t *testing.T, owner *rest.Config) set {
	t.Helper()
	client, err := kubernetes.NewForConfig(owner)
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectRulesReview{}
	review.Spec.Namespace = "default"
	review, err = client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.Incomplete {
		t.Fatal(err, review.Status.EvaluationError)
	}
	all := make(set)
	for _, rule := range review.Status.ResourceRules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					on := strings.Trim(resource+"."+group, ".")
					all[verb+" "+strings.TrimSpace(on+" "+strings.Join(rule.ResourceNames, " "))] = true
				}
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				all[verb+" "+url] = true
			}
		}
	}
	return all
}

type set map[string]bool

func (s set) has(all set) bool {
	for one := range all {
		if !s[one] {
			return false
		}
	}
	return true
}

// cachedResources are those of cache.resources in the chart's values.
func cachedResources(t *testing.T) set {
	t.Helper()
	var v struct {
		Cache struct {
			Resources []struct {
				Group     string
				Resources []string
			}
		}
	}
	decode(t, "../chart/values.yaml", &v)
	all := make(set)
	for _, group := range v.Cache.Resources {
		for _, resource := range group.Resources {
			all[strings.Trim(resource+"."+group.Group, ".")] = true
		}
	}
	if len(all) < 30 {
		t.Fatalf("the values have %v", all)
	}
	return all
}

// call is a request, and the Impersonate-* headers that it has.
type call struct {
	user, groups string
	method, uri  string
	body         string
}

// do returns the code and the body of the answer.
func (c call) do(t *testing.T, client *http.Client, server string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, server+c.uri, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if c.user != "" {
		req.Header.Set("Impersonate-User", c.user)
		req.Header["Impersonate-Group"] = strings.Fields(c.groups)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.Contains(c.uri, "watch=1") {
		return resp.StatusCode, ""
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// TestKubeletRules: the rules for kubelets are those of a node at kube-apiserver, and what every
// authenticated user may ask about itself and the API.
func TestKubeletRules(t *testing.T) {
	c := theCluster(t)
	role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "system:node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(set)
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all[verb+" "+resource+"."+group] = true
				}
			}
		}
	}
	for right := range rights(render(t, kubeletValues)) {
		right, ok := strings.CutPrefix(right, "impersonate-on:arbitrary-node:")
		switch {
		case ok && all[right]:
			delete(all, right)
		case ok && !strings.HasPrefix(right, "create selfsubject") && !strings.HasPrefix(right, "get /"):
			t.Errorf("kubelet-rules.yaml: a node may not %s", right)
		}
	}
	if len(all) > 0 {
		t.Errorf("kubelet-rules.yaml does not have %v", slices.Sorted(maps.Keys(all)))
	}
}

// checkKubelet does through watchfan what a kubelet does, with a node's certificate.
func (w *watchfan) checkKubelet(t *testing.T, c *cluster, node string) {
	w.present(t, c.certificate(t, "system:node:"+node, "system:nodes"))
	f := func(method, uri, body, want string) string {
		t.Helper()
		code, answer := call{method: method, uri: uri, body: body}.do(t, w.client, "https://"+w.secure)
		if code/100 != 2 || !strings.Contains(answer, want) {
			t.Errorf("%s %s: %d %s, want %s", method, uri, code, answer, want)
		}
		return answer
	}
	f("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}",
		`"groups":["system:nodes","system:authenticated"]`)
	f("GET", "/version", "", "gitVersion")
	f("POST", "/api/v1/nodes", `{"metadata":{"name":"`+node+`"}}`, node)
	f("GET", "/api/v1/nodes/"+node, "", node)
	f("PATCH", "/api/v1/nodes/"+node+"/status", `{"status":{"phase":"Running"}}`, `"phase":"Running"`)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	lease := f("POST", leases, `{"metadata":{"name":"`+node+`"},"spec":{"holderIdentity":"`+node+`"}}`, node)
	f("PUT", leases+"/"+node, lease, node)
	pods, pod := "/api/v1/pods?fieldSelector=spec.nodeName%3D"+node, "/api/v1/namespaces/apps/pods/p-"+node
	f("GET", pods, "", `"name":"p-`+node+`"`)
	f("GET", pods+"&watch=1", "", "")
	var its struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(f("GET", pod, "", `"name":"p-`+node+`"`)), &its); err != nil {
		t.Fatal(err)
	}
	f("PATCH", pod+"/status", `{"status":{"phase":"Running"}}`, `"phase":"Running"`)
	f("GET", secrets+"/s-"+node, "", `"name":"s-`+node+`"`)
	f("GET", secrets+"?fieldSelector=metadata.name%3Ds-"+node+"&watch=1", "", "")
	f("POST", "/api/v1/namespaces/apps/events", `{"metadata":{"name":"`+node+`"},"reason":"Started",`+
		`"involvedObject":{"kind":"Pod","namespace":"apps","name":"p-`+node+`"}}`, `"reason":"Started"`)
	f("POST", tokens, `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"p-`+node+`","uid":"`+
		its.Metadata.UID+`"}}}`, `"token":`)
}

// checkThief: who has the token alone may be a node, for what kubelets do, and nobody else.
func checkThief(t *testing.T, token *rest.Config) {
	client, err := rest.HTTPClientFor(token)
	if err != nil {
		t.Fatal(err)
	}
	const node, admins = "system:node:n1", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	const admin = `{"metadata":{"name":"mine"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
		`"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"mine"}]}`
	const itself, others = `watchfan:watchfan\" cannot `, "cannot impersonate"
	const beyond = others + "-on:arbitrary-node:"
	for because, calls := range map[string][]call{
		itself: {
			{method: "GET", uri: "/api/v1/secrets"},
			{method: "GET", uri: secrets + "/s-n1"},
			{method: "POST", uri: admins, body: admin},
			{method: "DELETE", uri: podN1},
			{method: "PATCH", uri: "/api/v1/nodes/n1/status", body: "{}"},
			{method: "POST", uri: tokens, body: "{}"},
		},
		others: {
			{"kubernetes-admin", "system:masters", "GET", "/api/v1/secrets", ""},
			{"kubernetes-admin", "", "GET", "/version", ""},
			{"system:kube-controller-manager", "", "GET", "/version", ""},
			{"system:anonymous", "", "GET", "/version", ""},
			{"system:serviceaccount:apps:client", "", "GET", configMaps, ""},
			{"system:serviceaccount:watchfan:watchfan", "", "GET", configMaps, ""},
			{node, "system:masters", "GET", podN1, ""},
			{node, "system:nodes", "GET", podN1, ""},
			{node, "system:authenticated", "GET", podN1, ""},
			{"system:node:N_1", "", "GET", podN1, ""},
		},
		beyond: {
			{node, "", "DELETE", "/api/v1/nodes/n1", ""},
			{node, "", "PATCH", podN1, "{}"},
			{node, "", "POST", podN1 + "/exec?command=id", ""},
			{node, "", "POST", admins, admin},
			{node, "", "DELETE", secrets + "/s-n1", ""},
			{node, "", "GET", "/metrics", ""},
			{node, "", "GET", "/apis/apps/v1/deployments", ""},
			{node, "", "DELETE", "/api/v1/namespaces/apps/pods", ""},
		},
		`User \"system:node:n1\" cannot `: {
			{node, "", "GET", secrets + "/s-n2", ""},
			{node, "", "GET", "/api/v1/secrets", ""},
			{node, "", "POST", "/api/v1/namespaces/apps/serviceaccounts/default/token", "{}"},
		},
	} {
		for _, c := range calls {
			code, body := c.do(t, client, token.Host)
			if code != http.StatusForbidden || !strings.Contains(body, because) {
				t.Errorf("%+v: %d %s, want 403 because %s", c, code, body, because)
			}
		}
	}
	for _, n := range []string{"n1", "n2"} {
		c := call{"system:node:" + n, "", "GET", secrets + "/s-" + n, ""}
		if code, body := c.do(t, client, token.Host); code != http.StatusOK {
			t.Errorf("as %s: %d %s; the threat model says that its pods' secrets can be read", n, code, body)
		}
	}
}
