package deploytest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// paints are the objects that the client reads, among them custom resources that can be selected by
// a field, and the client's own rights.
const paints = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: paints.deploytest.example.com}
spec:
  group: deploytest.example.com
  scope: Namespaced
  names: {plural: paints, singular: paint, kind: Paint}
  versions:
    - name: v1
      served: true
      storage: true
      selectableFields: [{jsonPath: .spec.color}]
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: apps}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: client, namespace: apps}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: client, namespace: apps}
rules:
  - {apiGroups: [""], resources: [configmaps, secrets], verbs: [get, list, watch]}
  - {apiGroups: [deploytest.example.com], resources: [paints], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: client, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: client}
subjects: [{kind: ServiceAccount, name: client, namespace: apps}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: first, namespace: apps}
---
apiVersion: v1
kind: Secret
metadata: {name: first, namespace: apps}
`

// painters is a group with the client's rights.
const painters = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: painters, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: client}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: painters}]
`

const paint = `
apiVersion: deploytest.example.com/v1
kind: Paint
metadata: {name: %[1]s, namespace: apps}
spec: {color: %[1]s}
`

const (
	configMaps = "/api/v1/namespaces/apps/configmaps"
	secrets    = "/api/v1/namespaces/apps/secrets"
	ofPaints   = "/apis/deploytest.example.com/v1/namespaces/apps/paints"
)

const chartValues = `{audit: {enabled: true}, cache: {moreResources: [{group: deploytest.example.com, ` +
	`resources: [paints]}]}}`

// TestLeastRightsSuffice installs the chart, and runs the program with the Deployment's flags, the
// release's certificate and a token of its service account. Everything that can be cached is served
// from the cache. Without any one of the role's rules, something is not.
func TestLeastRightsSuffice(t *testing.T) {
	c := theCluster(t)
	binary(t, "watchfan")
	c.must(t, paints)
	steady.Until(t, "custom resource", func() error {
		return errors.Join(c.apply(t.Context(), parse(t, fmt.Sprintf(paint, "red"))[0], false),
			c.apply(t.Context(), parse(t, fmt.Sprintf(paint, "blue"))[0], false))
	})
	c.install(t, chartValues)
	c.takeDefaultRightsAway(t)

	t.Run("all", func(t *testing.T) {
		w := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")
		w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
		w.served(t, 1, "paints", ofPaints+"?resourceVersion=0", "blue")
		w.served(t, 1, "paints", ofPaints+"?resourceVersion=0&fieldSelector=spec.color%3Dred", `"name":"red"`)
		w.watched(t, c)
		w.consistent(t, c)
		// The client's own token tells its name, so the program needs no right to ask for it.
		steady.Until(t, "client in the audit log", func() error {
			log := readFile(t, w.log)
			if strings.Count(log, `"username":"system:serviceaccount:apps:client"`) < 3 ||
				strings.Contains(log, "watchfan.io/user-unknown") {
				return errors.New(log)
			}
			return nil
		})
		if got := w.metric(t, "watchfan_seed_failures_total", `reason="no_sibling"`); got == 0 {
			t.Error("no sibling was looked for")
		}
		// A resource that the program may not list passes through, with the client's rights.
		w.served(t, 0, "secrets", secrets+"?resourceVersion=0", "first")
		// The client cannot read more here than it may read at kube-apiserver.
		for _, uri := range []string{"/api/v1/configmaps?resourceVersion=0",
			"/api/v1/namespaces/default/configmaps?resourceVersion=0", "/api/v1/nodes?watch=1"} {
			w.refused(t, uri, http.StatusForbidden, "")
		}
	})

	role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "watchfan:watchfan", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	without := func(name string, needless func(i int) bool, check func(t *testing.T, w *watchfan)) {
		t.Run("without "+name, func(t *testing.T) {
			less := role.DeepCopy()
			less.Rules, less.ResourceVersion = nil, ""
			var lost rbacv1.PolicyRule
			for i, rule := range role.Rules {
				if needless(i) {
					lost = rule
				} else {
					less.Rules = append(less.Rules, rule)
				}
			}
			if len(less.Rules) != len(role.Rules)-1 {
				t.Fatalf("%d of %d rules are left", len(less.Rules), len(role.Rules))
			}
			if _, err := c.client.RbacV1().ClusterRoles().Update(t.Context(), less,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			steady.Until(t, "loss of the right", func() error { return c.refuses(t, "system:serviceaccount:watchfan:watchfan", lost) })
			check(t, c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan"))
		})
	}
	has := func(resource string) func(int) bool {
		return func(i int) bool { return strings.Contains(strings.Join(role.Rules[i].Resources, " "), resource) }
	}
	without("the resource", has("paints"), func(t *testing.T, w *watchfan) {
		w.served(t, 0, "paints", ofPaints+"?resourceVersion=0", "blue")
		w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	})
	without("definitions", has("customresourcedefinitions"), func(t *testing.T, w *watchfan) {
		w.served(t, 1, "paints", ofPaints+"?resourceVersion=0", "blue")
		w.served(t, 0, "paints", ofPaints+"?resourceVersion=0&fieldSelector=spec.color%3Dred", `"name":"red"`)
	})
	without("APIServices", has("apiservices"), func(t *testing.T, w *watchfan) {
		w.served(t, 0, "paints", ofPaints+"?resourceVersion=0", "blue")
		w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	})
	without("the cluster's identity", func(i int) bool { return len(role.Rules[i].ResourceNames) > 0 },
		func(t *testing.T, w *watchfan) {
			w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
			if got := w.metric(t, "watchfan_seed_failures_total", `reason="unidentified"`); got == 0 {
				t.Error("the identity of the cluster was not needed")
			}
		})
	without("discovery", func(i int) bool { return len(role.Rules[i].NonResourceURLs) > 0 },
		func(t *testing.T, w *watchfan) {
			w.served(t, 0, "configmaps", configMaps+"?resourceVersion=0", "first")
		})
	role.ResourceVersion = ""
	if _, err := c.client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestClientCertificates: with clientCertificates, the role suffices to serve users of
// certificates, from the cache and passed through. Users that may not be impersonated are not
// passed through.
func TestClientCertificates(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints+painters)
	c.install(t,
		`{clientCertificates: {enabled: true, configMap: client-ca, impersonate: {users: [jane], groups: [painters, `+
			`"system:authenticated"]}}}`)
	w := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")

	w.present(t, c.certificate(t, "jane", "painters"))
	w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	w.served(t, 0, "secrets", secrets+"?resourceVersion=0", "first")
	w.refused(t, "/api/v1/configmaps?resourceVersion=0", http.StatusForbidden, `User \"jane\" cannot list`)
	w.present(t, c.certificate(t, "joe", "painters"))
	w.refused(t, secrets, http.StatusForbidden, "cannot impersonate")
}

// TestFrontProxies: with frontProxies, the role suffices to serve users that a front proxy names.
// Users that may not be impersonated are not passed through. Without anonymousAuth, a client
// without a credential is refused.
func TestFrontProxies(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints+painters)
	c.install(t, `{anonymousAuth: false,
		frontProxies: {enabled: true, configMap: front-proxy-ca, extraKeys: [example.com/scopes]},
		clientCertificates: {impersonate: {users: [jane], groups: [painters, "system:authenticated"]}}}`)
	w := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")

	w.present(t, c.certificate(t, "front-proxy-client", "front-proxies"))
	w.header = http.Header{"X-Remote-User": {"jane"}, "X-Remote-Group": {"painters"},
		"X-Remote-Extra-Example.com%2fscopes": {"some"}}
	w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	w.served(t, 0, "secrets", secrets+"?resourceVersion=0", "first")
	w.header.Set("X-Remote-Extra-Other", "some")
	w.refused(t, secrets, http.StatusForbidden, "cannot impersonate") // not among extraKeys
	w.header = http.Header{"X-Remote-User": {"joe"}, "X-Remote-Group": {"painters"}}
	w.refused(t, secrets, http.StatusForbidden, "cannot impersonate")
	// A certificate of the same CA with a name that is not in allowedNames is no front proxy's. It
	// is no client's either, because client certificates are not enabled.
	w.present(t, c.certificate(t, "jane", "painters"))
	w.refused(t, configMaps, http.StatusUnauthorized, "")
}

// certificate returns a client certificate that the cluster's CA has signed.
func (c *cluster) certificate(t *testing.T, user, group string) *tls.Certificate {
	t.Helper()
	ca, err := c.Authority()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Client(user, []string{group}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// present makes the client use a certificate, and no token, from its next request on.
func (w *watchfan) present(t *testing.T, certificate *tls.Certificate) {
	t.Helper()
	transport := w.client.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	t.Cleanup(transport.CloseIdleConnections)
	w.client.Transport, w.token = transport, ""
}

// TestNodeTier: the DaemonSet's program, whose upstream is the chart's tier, serves from its own
// cache. Its upstream watch is served from the tier's cache.
func TestNodeTier(t *testing.T) {
	c := theCluster(t)
	binary(t, "watchfan")
	c.must(t, paints)
	c.install(t, chartValues)
	for _, o := range parse(t, readFile(t, "../sidecar/daemonset.yaml")) {
		if err := c.apply(t.Context(), o, false); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	tier := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")
	node := c.watchfan(t, "https://"+tier.secure, tier.caFile, "watchfan-node")
	node.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	node.watched(t, c)
	node.consistent(t, c)
	if got := tier.metric(t, "watchfan_cached_requests_total", `resource="configmaps"`, `verb="watch"`); got < 1 {
		t.Errorf("the tier served %v watches of configmaps", got)
	}
}

// TestReleases: an upgrade and a rollback keep the certificate that clients trust.
func TestReleases(t *testing.T) {
	c := theCluster(t)
	certificate := func() string {
		s, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), "watchfan-tls", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.Data["ca.crt"])
		for _, host := range []string{"watchfan.watchfan", "watchfan.watchfan.svc",
			"watchfan.watchfan.svc.cluster.local", "kubernetes.default.svc", "fan.example.com"} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
				t.Error(err)
			}
		}
		return string(s.Data["tls.crt"])
	}
	replicas := func() int32 {
		d, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), "watchfan", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *d.Spec.Replicas
	}
	c.install(t, "tls: {extraHosts: [fan.example.com]}")
	first := certificate()
	c.upgrade(t, "{tls: {extraHosts: [fan.example.com]}, replicas: 5}")
	if n := replicas(); n != 5 {
		t.Errorf("after the upgrade: %d replicas", n)
	}
	if certificate() != first {
		t.Error("the upgrade made another certificate")
	}
	c.rollback(t)
	if n := replicas(); n != 2 {
		t.Errorf("after the rollback: %d replicas", n)
	}
	if certificate() != first {
		t.Error("the rollback brought another certificate")
	}
}

// takeDefaultRightsAway removes the default rights of authenticated users until the test ends,
// except those that no cluster can work without.
func (c *cluster) takeDefaultRightsAway(t *testing.T) {
	t.Helper()
	bindings := c.client.RbacV1().ClusterRoleBindings()
	for _, name := range []string{"system:discovery", "system:public-info-viewer"} {
		binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			err = bindings.Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			binding.ResourceVersion = ""
			if _, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// token returns a token of a service account, as pods have it.
func (c *cluster) token(t *testing.T, namespace, name string) string {
	t.Helper()
	r, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// watchfan is the program as a pod of the release runs it, and a client of it.
type watchfan struct {
	client *http.Client
	token  string      // "": none
	header http.Header // of each request
	caFile string      // of its serving certificate
	log    string      // the file of its log, and of its audit log if the release has one
	secure string      // address of its port for clients
	admin  string      // and of its admin port
}

// watchfan starts the program with the flags of the Deployment and a token of a service account in
// the release's namespace.
func (c *cluster) watchfan(t *testing.T, upstream, upstreamCA, account string) *watchfan {
	t.Helper()
	dir := t.TempDir()
	secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), "watchfan-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["config.yaml"] = []byte(c.configuration(t))
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.kubeconfig(t, filepath.Join(dir, "kubeconfig"), upstream, upstreamCA, account)

	fan := startWatchfan(t, dir, filepath.Join(dir, "kubeconfig"), c.flags(t, account, dir)...)
	w := &watchfan{token: c.token(t, "apps", "client"), caFile: filepath.Join(dir, "ca.crt"), log: fan.Log,
		secure: fan.Ports.Secure, admin: fan.Ports.Admin}
	w.client = trusting(t, secret.Data["ca.crt"])
	return w
}

// configuration returns the release's configuration file.
func (c *cluster) configuration(t *testing.T) string {
	t.Helper()
	file, err := c.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "watchfan", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return file.Data["config.yaml"]
}

// trusting returns a client that trusts the release's CA.
func trusting(t *testing.T, ca []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "watchfan.watchfan.svc"}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: steady.Patience}
}

// kubeconfig writes a kubeconfig with the token of a service account in the release's namespace.
func (c *cluster) kubeconfig(t *testing.T, file, upstream, upstreamCA, account string) {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: upstream, CertificateAuthority: upstreamCA}
	if upstream != c.config.Host {
		kubeconfig.Clusters["c"].TLSServerName = "watchfan.watchfan.svc"
	}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.token(t, namespace, account)}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
}

// startWatchfan starts the program, which is ready then and ends with the test.
func startWatchfan(t *testing.T, dir, kubeconfig string, flags ...string) *proxytest.Watchfan {
	t.Helper()
	flags = append(flags, "--shutdown-delay-duration=0s")
	fan, err := proxytest.StartWatchfan(binary(t, "watchfan"), dir, kubeconfig, steady.Patience, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fan.Stop(); err != nil {
			t.Error(err)
		}
	})
	awaitReady(t, fan.Ports.Admin+"/readyz")
	return fan
}

// awaitReady waits until a URL answers with 200.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	steady.Until(t, "200 of "+url, func() error {
		resp, err := http.Get("http://" + url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return nil
	})
}

// flags returns the flags of the Deployment, or of the fall-back's StatefulSet, with files and ports of
// this machine.
func (c *cluster) flags(t *testing.T, account, dir string) (flags []string) {
	t.Helper()
	here := strings.NewReplacer("/etc/watchfan/tls", dir, "/etc/watchfan/config", dir, "/etc/watchfan/client-ca/client-ca-file", c.Ready.CAFile,
		"/etc/watchfan/front-proxy-ca/requestheader-client-ca-file", c.Ready.CAFile, "=8443", "=-1", "=8002", "=-1",
		"=0.0.0.0", "=127.0.0.1", "$(POD_NAME)", "watchfan-fallback-1", "$(POD_UID)", "uid", "$(NODE_NAME)", "node-a", "$(POD_IPS)", "10.0.0.7,fd00::7")
	var spec corev1.PodSpec
	if account == "watchfan-fallback" {
		set, err := c.client.AppsV1().StatefulSets(namespace).Get(t.Context(), account, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec = set.Spec.Template.Spec
	} else {
		deployment, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), "watchfan", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec = deployment.Spec.Template.Spec
	}
	for _, flag := range spec.Containers[0].Args {
		flags = append(flags, here.Replace(flag))
	}
	return flags
}

// A fall-back replica needs its few rights, and becomes an endpoint with them, in a slice of its own only.
func TestFallbackRights(t *testing.T) {
	c := theCluster(t)
	binary(t, "watchfan")
	c.must(t, paints)
	c.install(t, chartValues)
	w := c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan-fallback") // is ready
	w.served(t, 0, "configmaps", configMaps, "first")
	slices := c.client.DiscoveryV1().EndpointSlices(namespace)
	for family, address := range map[string]string{"ipv4": "10.0.0.7", "ipv6": "fd00::7"} {
		s, err := slices.Get(t.Context(), "watchfan-fallback-1-"+family, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if e := s.Endpoints[0]; e.Addresses[0] != address || *e.Conditions.Ready || !*e.Conditions.Serving || !*e.Conditions.Terminating ||
			!strings.HasSuffix(w.secure, fmt.Sprintf(":%d", *s.Ports[0].Port)) {
			t.Errorf("got %+v, ports %+v", e, s.Ports)
		}
	}
	review := func(verb, name string) bool {
		t.Helper()
		r, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":watchfan-fallback",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: "discovery.k8s.io",
					Resource: "endpointslices", Name: name}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Allowed
	}
	if !review("patch", "watchfan-fallback-0-ipv4") || review("patch", "watchfan-abcde") || review("create", "") || review("delete", "watchfan-fallback-0-ipv4") {
		t.Error("it may write other slices than its own")
	}
}

func (w *watchfan) open(ctx context.Context, uri string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.secure+uri, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, w.header)
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.client.Do(req)
}

func (w *watchfan) get(t *testing.T, uri string) (code int, body string) {
	t.Helper()
	resp, err := w.open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// refused checks that a request is refused, and why.
func (w *watchfan) refused(t *testing.T, uri string, want int, because string) {
	t.Helper()
	if code, body := w.get(t, uri); code != want || !strings.Contains(body, because) {
		t.Errorf("%s: %d %s, want %d because %s", uri, code, body, want, because)
	}
}

// metric returns the sum of a metric over all label sets that have the given labels.
func (w *watchfan) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return proxytest.SumMetric(scrape(t, w.admin), name, labels...)
}

// served requests uri, and checks how many requests the cache has answered because of that.
func (w *watchfan) served(t *testing.T, want float64, resource, uri, content string) {
	t.Helper()
	count := func() float64 {
		return w.metric(t, "watchfan_cached_requests_total", `resource="`+resource+`"`, `verb="list"`)
	}
	before := count()
	code, body := w.get(t, uri)
	if code != http.StatusOK || !strings.Contains(body, content) {
		t.Errorf("%s: %d %s", uri, code, body)
	}
	if got := count() - before; got != want {
		t.Errorf("%s: %v requests were served from the cache, want %v", uri, got, want)
	}
}

// watched checks that a watch gets a write, from the cache.
func (w *watchfan) watched(t *testing.T, c *cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := w.open(ctx, configMaps+"?watch=1&sendInitialEvents=true"+
		"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if err != nil {
		t.Fatal(err)
	}
	events := proxytest.NewWatcher(t, resp, cancel)
	events.Until("end of the initial events", func(all []proxytest.Event) bool {
		return slices.ContainsFunc(all, func(e proxytest.Event) bool { return e.End })
	})
	if n := w.metric(t, "watchfan_watchers"); n != 1 {
		t.Errorf("%v watchers are served from the cache", n)
	}
	written := fmt.Sprintf("written-%d", time.Now().UnixNano())
	c.must(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+written+", namespace: apps}\n")
	events.Until("the write", func(all []proxytest.Event) bool {
		last := all[len(all)-1]
		return last.Type == "ADDED" && last.Key == "apps/"+written
	})
	events.Close()
}

// consistent checks that lists without a resourceVersion show the last write. Many lists at a time
// share proofs. A few at a time would pass through.
func (w *watchfan) consistent(t *testing.T, c *cluster) {
	t.Helper()
	written := fmt.Sprintf("consistent-%d", time.Now().UnixNano())
	c.must(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+written+", namespace: apps}\n")
	before := w.metric(t, "watchfan_cached_requests_total", `resource="configmaps"`, `verb="list"`)
	const clients = 64
	results := make(chan error, clients)
	for range clients {
		go func() {
			resp, err := w.open(t.Context(), configMaps)
			if err != nil {
				results <- err
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && !bytes.Contains(body, []byte(written)) {
				err = fmt.Errorf("%s: %s is not in %s", resp.Status, written, body)
			}
			results <- err
		}()
	}
	for range clients {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := w.metric(t, "watchfan_cached_requests_total", `resource="configmaps"`, `verb="list"`) - before; got == 0 {
		t.Errorf("none of %d consistent lists was served from the cache", clients)
	}
	if n := w.metric(t, "watchfan_freshness_proofs_total", `resource="configmaps"`, `result="ok"`); n == 0 {
		t.Error("nothing was proven")
	}
	if n := w.metric(t, "watchfan_freshness_proofs_total", `resource="configmaps"`, `result="failed"`); n != 0 {
		t.Errorf("%v proofs failed", n)
	}
}

// refuses returns nil if kube-apiserver's authorizer does not let a user do what a rule allows.
func (c *cluster) refuses(t *testing.T, user string, rule rbacv1.PolicyRule) error {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
	if urls := rule.NonResourceURLs; len(urls) > 0 {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Verb: rule.Verbs[0], Path: strings.TrimSuffix(urls[0], "*")}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
			Name: strings.Join(rule.ResourceNames[:min(1, len(rule.ResourceNames))], "")}
	}
	got, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err == nil && got.Status.Allowed {
		err = fmt.Errorf("%s may still do what %v allows", user, rule)
	}
	return err
}
