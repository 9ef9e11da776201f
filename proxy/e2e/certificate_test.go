//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// authority signs client certificates.
type authority struct{ *proxytest.Authority }

// newAuthority returns an authority that kube-apiserver does not know yet.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"),
		&x509.Certificate{Subject: pkix.Name{CommonName: "front-proxy-ca"}})
	if err != nil {
		t.Fatal(err)
	}
	return &authority{a}
}

// authority returns the authority whose client certificates kube-apiserver accepts.
func (c *cluster) authority(t *testing.T) *authority {
	t.Helper()
	a, err := c.Authority()
	if err != nil {
		t.Fatal(err)
	}
	return &authority{a}
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	certificate, err := a.Sign(template)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// client returns a certificate for a user.
func (a *authority) client(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Subject: pkix.Name{CommonName: name, Organization: groups}})
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// certificateFiles writes a certificate and its key for kubectl and client-go.
func certificateFiles(t *testing.T, c *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	for name, content := range map[string][]byte{certFile: encodePEM("CERTIFICATE", c.Certificate[0]),
		keyFile: encodePEM("EC PRIVATE KEY", der)} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// certified is a cluster and a watchfan that accept client certificates and front proxies and have
// the Node authorizer.
type certified struct {
	cluster *cluster
	proxy   *watchfan
	flags   []string // the watchfan's
	users   *authority
	fronts  *authority
	direct  *target // the admin's
	admin   *target // watchfan's admin port
}

// newCertified starts both, the watchfan with more flags.
func newCertified(t *testing.T, more ...string) *certified {
	t.Helper()
	s := &certified{fronts: newAuthority(t), flags: more}
	flags := []string{"requestheader-client-ca-file=" + s.fronts.File, "requestheader-allowed-names=front",
		"requestheader-username-headers=X-Remote-User",
		"requestheader-uid-headers=X-Remote-Uid", "requestheader-group-headers=X-Remote-Group",
		"requestheader-extra-headers-prefix=X-Remote-Extra-"}
	var args []string
	for _, f := range append([]string{"authorization-mode=Node"}, flags...) { // besides RBAC
		args = append(args, "--apiserver-arg", f)
	}
	s.cluster = privateCluster(t, args...)
	s.users = s.cluster.authority(t)
	for _, f := range append(flags, "client-ca-file="+s.users.File) {
		s.flags = append(s.flags, "--"+f)
	}
	s.proxy = privateWatchfan(t, s.cluster, s.flags...)
	s.proxy.waitReady(t)
	s.direct, s.admin = s.cluster.direct(t), s.proxy.admin(t)
	createNamespaces(t, s.direct, "a", "b")
	for _, ns := range []string{"a", "b"} {
		makeConfigMap(t, s.direct, ns, "x", `"l":"1"`)
	}
	s.direct.create(t, "/api/v1/namespaces/a/pods", podBody("p1", "n1"))
	s.direct.create(t, "/api/v1/namespaces/a/pods", podBody("p2", "n2"))
	s.direct.create(t, "/api/v1/namespaces/a/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
	// The group devs may read and write configmaps of namespace a, and read its pods.
	roles := "/apis/rbac.authorization.k8s.io/v1/namespaces/a/"
	s.direct.create(t, roles+"roles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"dev"},`+
			`"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]},{"apiGroups":[""],`+
			`"resources":["pods"],"verbs":["get","list","watch"]},{"apiGroups":[""],"resources":["pods/exec"],`+
			`"verbs":["create","get"]}]}`)
	s.direct.create(t, roles+"rolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"dev"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"dev"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"devs"}]}`)
	// All are cached before anybody asks.
	warm(t, []*target{s.proxy.plain(t)}, "/api/v1/configmaps", "/api/v1/pods")
	warm(t, []*target{s.proxy.secure(t, s.cluster.token(t, "admin"))}, "/api/v1/secrets")
	return s
}

// ways returns the ways through watchfan and straight to kube-apiserver for a client certificate.
func (s *certified) ways(t *testing.T, c *tls.Certificate) (ours, theirs *target) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }}
	ours = newTarget("watchfan/certificate", "https://"+s.proxy.ports.Secure, config)
	theirs = newTarget("kube-apiserver/certificate", s.cluster.Ready.Server, config)
	t.Cleanup(ours.close)
	t.Cleanup(theirs.close)
	return ours, theirs
}

// same compares a row both ways.
func (s *certified) same(t *testing.T, who string, c *tls.Certificate, r row) {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	ours, theirs := s.ways(t, c)
	if err := r.compare(t, theirs, ours); err != nil {
		t.Errorf("%s %s as %s with %v: %v", r.method, r.uri, who, r.header, err)
	}
}

func (s *certified) cached(t *testing.T) float64 {
	return s.admin.metric(t, "watchfan_cached_requests_total")
}

var createdAt = regexp.MustCompile(`"creationTimestamp":\s?"[^"]*"`)

var whoami = row{uri: "/apis/authentication.k8s.io/v1/selfsubjectreviews", method: http.MethodPost,
	body: `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`}

// with returns r with headers given in pairs.
func (r row) with(headers ...string) row {
	r.header = make(http.Header)
	for i := 0; i < len(headers); i += 2 {
		r.header.Add(headers[i], headers[i+1])
	}
	return r
}

// certificateTest is what the parts of TestCertificates share.
type certificateTest struct {
	*certified
	dev, none, root, node *tls.Certificate
	front, stranger       *tls.Certificate            // of the authority of front proxies
	certificates          map[string]*tls.Certificate // of users, by name
}

// TestCertificates: through the TLS port a client certificate, and what a front proxy says, count
// as much as at kube-apiserver: the same user, the same answers and the same refusals, whether a
// cache answers or not (contract.md A01–A09, 6.1).
func TestCertificates(t *testing.T) {
	parallel(t)
	s := &certificateTest{certified: newCertified(t)}
	s.dev, s.none = s.users.client(t, "jane-of-devs", "devs", "ops"), s.users.client(t, "none-of-them")
	s.root = s.users.client(t, "root-of-masters", "system:masters")
	s.node = s.users.client(t, "system:node:n1", "system:nodes")
	uid := s.users.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Subject: pkix.Name{CommonName: "has-uid",
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid-1"}}}})
	s.certificates = map[string]*tls.Certificate{"dev": s.dev, "none": s.none, "root": s.root,
		"node": s.node, "uid": uid}
	s.front, s.stranger = s.fronts.client(t, "front"), s.fronts.client(t, "stranger")
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"rows", s.checkRows},
		{"from the cache", s.checkCached},
		{"who writes", s.checkWrites},
		{"interleaved", s.checkInterleaved},
		{"front proxy", s.checkFrontProxy},
		{"impersonation", s.checkImpersonation},
		{"not good", s.checkRefused},
		{"kubectl", s.checkKubectl},
		{"client-go", s.checkInformers},
		{"rights", s.checkRights},
		{"revocation", s.checkRevocation},
		{"kinds", s.checkMetrics},
	} {
		t.Run(part.name, part.test)
	}
}

// checkRows compares what each certificate may do.
func (s *certificateTest) checkRows(t *testing.T) {
	var comparing sync.WaitGroup
	defer comparing.Wait()
	for who, c := range s.certificates {
		s.same(t, who, c, whoami)
		for _, uri := range []string{
			"/api/v1/configmaps", "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps",
			"/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dx",
			"/api/v1/namespaces/a/configmaps/x", "/api/v1/namespaces/b/configmaps/x", "/api/v1/secrets",
			"/api/v1/namespaces/a/secrets/s",
			"/api/v1/pods",
			"/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", // A05
			"/foo", "/api/v1/nosuch",
		} {
			for _, query := range []string{"", "resourceVersion=0", "watch=1&timeoutSeconds=5&resourceVersion=0"} {
				sep := "?"
				if strings.Contains(uri, "?") {
					sep = "&"
				}
				comparing.Go(func() { s.same(t, who, c, row{uri: strings.TrimSuffix(uri+sep+query, sep)}) })
			}
		}
		// The body is malformed.
		s.same(t, who, c, row{method: http.MethodPost, uri: "/api/v1/namespaces/b/configmaps?dryRun=All",
			body: `{"metadata":{"name":"never"`})
		s.same(t, who, c, row{method: http.MethodDelete, uri: "/api/v1/namespaces/b/secrets/never"})
		s.same(t, who, c, row{method: http.MethodPost, uri: "/api/v1/namespaces/a/pods/p1/exec?command=true"})
	}
}

// checkCached checks that certificates are served from the cache as their users.
func (s *certificateTest) checkCached(t *testing.T) {
	for who, c := range map[string]*tls.Certificate{"dev": s.dev, "root": s.root} {
		ours, _ := s.ways(t, c)
		before := s.cached(t)
		ours.get(t, "/api/v1/namespaces/a/configmaps?resourceVersion=0")
		if n := s.cached(t) - before; n != 1 {
			t.Errorf("%s: %v lists from the cache, want 1", who, n)
		}
		ours.watch(t, "/api/v1/namespaces/a/configmaps?watch=1").stop()
		if n := s.cached(t) - before; n != 2 {
			t.Errorf("%s: %v reads from the cache, want 2", who, n)
		}
	}
	ours, _ := s.ways(t, s.node)
	before := s.cached(t)
	resp := ours.get(t, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0")
	if resp.status != http.StatusOK || s.cached(t)-before != 1 {
		t.Errorf("a node's own pods: %d, %v from the cache", resp.status, s.cached(t)-before)
	}
	resp = ours.get(t, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2&resourceVersion=0")
	if resp.status != http.StatusForbidden {
		t.Errorf("another node's pods: %d", resp.status)
	}
}

// checkWrites writes with a certificate.
func (s *certificateTest) checkWrites(t *testing.T) {
	ours, _ := s.ways(t, s.dev)
	ours.create(t, "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"by-jane"},"data":{"k":"v"}}`)
	ours.patch(t, "/api/v1/namespaces/a/configmaps/by-jane", `{"data":{"k":"w"}}`)
	ours.remove(t, "/api/v1/namespaces/a/configmaps/by-jane")
}

// checkInterleaved reads at once with a certificate that may and one that may not (A09).
func (s *certificateTest) checkInterleaved(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, want := s.dev, http.StatusOK
			if i%2 == 1 {
				c, want = s.none, http.StatusForbidden
			}
			way, _ := s.ways(t, c)
			for range 25 {
				if resp := way.get(t, "/api/v1/namespaces/a/configmaps?resourceVersion=0"); resp.status != want {
					t.Errorf("%d, want %d: %s", resp.status, want, resp.body)
				}
			}
		})
	}
	wg.Wait()
}

// checkFrontProxy: only the front proxy's certificate may name a user (A08).
func (s *certificateTest) checkFrontProxy(t *testing.T) {
	says := []string{"X-Remote-User", "Jané", "X-Remote-Group", "devs", "X-Remote-Group", "g 2", "X-Remote-Uid", "u-1",
		"X-Remote-Extra-Acme.com%2fRole", "r1", "X-Remote-Extra-Acme.com%2fRole", "r2"}
	for who, c := range map[string]*tls.Certificate{"front": s.front, "stranger": s.stranger, "dev": s.dev} {
		s.same(t, who, c, whoami.with(says...))
		s.same(t, who, c, row{uri: "/api/v1/namespaces/a/configmaps?resourceVersion=0"}.with(says...))
		s.same(t, who, c, row{uri: "/api/v1/namespaces/b/configmaps?resourceVersion=0"}.with(says...))
		s.same(t, who, c, whoami.with("X-Remote-User", "root", "X-Remote-Group", "system:masters"))
		s.same(t, who, c, whoami.with("X-Remote-Group", "system:masters"))
		s.same(t, who, c, whoami.with("X-Remote-User", "system:serviceaccount:a:default",
			"Authorization", "Bearer bad"))
	}
	ours, _ := s.ways(t, s.front)
	before := s.cached(t)
	resp := ours.do(t, http.MethodGet, "/api/v1/namespaces/a/configmaps?resourceVersion=0",
		row{}.with(says...).header, "")
	if resp.status != http.StatusOK || s.cached(t)-before != 1 {
		t.Errorf("a front proxy's list: %d, %v from the cache", resp.status, s.cached(t)-before)
	}
}

// checkImpersonation: a certificate's user may impersonate the same users and groups as at
// kube-apiserver (A07).
func (s *certificateTest) checkImpersonation(t *testing.T) {
	s.direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"imp"},`+
			`"rules":[{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"],"resourceNames":["joe"]},`+
			`{"apiGroups":[""],"resources":["groups"],"verbs":["impersonate"],"resourceNames":["devs"]},`+
			`{"apiGroups":[""],"resources":["serviceaccounts"],"verbs":["impersonate"],"resourceNames":["SA"]}]}`)
	s.direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"imp"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"imp"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"devs"}]}`)
	steady.Until(t, "right to impersonate", func() error {
		_, theirs := s.ways(t, s.dev)
		resp := theirs.do(t, http.MethodGet, "/version", http.Header{"Impersonate-User": {"joe"}}, "")
		if resp.status != http.StatusOK {
			return fmt.Errorf("%d %s", resp.status, resp.body)
		}
		return nil
	})
	list := row{uri: "/api/v1/namespaces/a/configmaps?resourceVersion=0"}
	for _, headers := range [][]string{
		{"Impersonate-User", "joe"},
		{"Impersonate-User", "joe", "Impersonate-Group", "devs"},
		{"Impersonate-Group", "devs"},
		{"Impersonate-Uid", "u"},
		{"Impersonate-Extra-K", "v"},
		{"Impersonate-User", ""},
	} {
		for who, c := range map[string]*tls.Certificate{"dev": s.dev, "root": s.root} {
			s.same(t, who, c, whoami.with(headers...))
			s.same(t, who, c, list.with(headers...))
		}
	}
	s.same(t, "root", s.root, whoami.with("Impersonate-User", "system:serviceaccount:a:default"))
	s.same(t, "root", s.root, whoami.with("Impersonate-User", "jim", "Impersonate-Uid", "u", "Impersonate-Group",
		"system:masters", "Impersonate-Extra-A%2fB", "v"))
	ours, theirs := s.ways(t, s.dev)
	for _, headers := range [][]string{
		{"Impersonate-User", "jim"},
		{"Impersonate-User", "joe", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "joe", "Impersonate-Uid", "u"},
		{"Impersonate-User", "joe", "Impersonate-Extra-K", "v"},
		{"Impersonate-User", "system:serviceaccount:a:default"},
		{"Impersonate-User", "system:serviceaccount:a:SA"}, // no account can have this name, so it is a user's
	} {
		h := row{}.with(headers...).header
		got, want := ours.do(t, whoami.method, whoami.uri, h, whoami.body), theirs.do(t, whoami.method,
			whoami.uri, h, whoami.body)
		if got.status != http.StatusForbidden || want.status != http.StatusForbidden ||
			!bytes.Contains(got.body, []byte(`User \"jane-of-devs\" cannot impersonate`)) {
			t.Errorf("%q: %d %s\nkube-apiserver: %d %s", headers, got.status, got.body, want.status, want.body)
		}
	}
}

// checkRefused: a certificate of a foreign authority counts for nothing, and a bad token is refused
// beside a good certificate.
func (s *certificateTest) checkRefused(t *testing.T) {
	foreign := newAuthority(t).client(t, "root-of-masters", "system:masters")
	list := row{uri: "/api/v1/namespaces/a/configmaps?resourceVersion=0"}
	s.same(t, "a foreign certificate", foreign, list)
	s.same(t, "a foreign certificate and a token", foreign,
		list.with("Authorization", "Bearer "+s.cluster.token(t, "reader")))
	s.same(t, "a foreign certificate and a bad token", foreign, list.with("Authorization", "Bearer bad"))
	s.same(t, "a certificate and a bad token", s.dev, list.with("Authorization", "Bearer bad"))
	s.same(t, "a certificate and a password", s.dev, list.with("Authorization", "Basic eDp5"))
}

// checkKubectl: kubectl prints the same with a certificate.
func (s *certificateTest) checkKubectl(t *testing.T) {
	program, home := binary(t, "KUBECTL_BIN", "kubectl"), t.TempDir()
	empty := filepath.Join(home, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for who, c := range map[string]*tls.Certificate{"dev": s.dev, "root": s.root} {
		certFile, keyFile := certificateFiles(t, c)
		way := func(name, server string) kubectl {
			return kubectl{program, []string{"--kubeconfig", empty, "--server", server, "--insecure-skip-tls-verify",
				"--client-certificate", certFile, "--client-key", keyFile}, filepath.Join(home, who+name)}
		}
		straight, secure := way("straight", s.cluster.Ready.Server), way("secure", "https://"+s.proxy.ports.Secure)
		for _, args := range [][]string{
			{"auth", "whoami", "-o", "json"},
			{"auth", "whoami", "-o", "json", "--as", "joe", "--as-group", "devs"},
			{"auth", "can-i", "--list", "-n", "a"},
			{"get", "configmaps", "-n", "a"},
			{"get", "configmap", "x", "-n", "a", "-o", "yaml"},
			{"get", "configmaps", "-A"},
			{"get", "pods", "-n", "a", "-o", "name"},
			{"exec", "p1", "-n", "a", "--", "true"},
			{"create", "configmap", "dry", "-n", "a", "--dry-run=server", "-o", "name"},
		} {
			got, code := secure.run(t, "", args...)
			want, wantCode := straight.run(t, "", args...)
			got, want = createdAt.ReplaceAllString(sameOutput(got),
				""), createdAt.ReplaceAllString(sameOutput(want), "")
			if refused := code != 0 && wantCode != 0 && args[len(args)-2] == "--as-group"; !refused &&
				got != want || code != wantCode {
				t.Errorf("kubectl %q as %s: exit code %d, want %d\n got %s\nwant %s", args, who,
					code, wantCode, got, want)
			}
		}
	}
}

// checkInformers: informers sync with a certificate.
func (s *certificateTest) checkInformers(t *testing.T) {
	certFile, keyFile := certificateFiles(t, s.root)
	informers := startInformers(t, "certificate",
		&rest.Config{Host: "https://" + s.proxy.ports.Secure,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: certFile, KeyFile: keyFile}})
	informers.waitSynced(t)
	makeConfigMap(t, s.direct, "b", "later", `"l":"1"`)
	steady.Until(t, "event at the informer", func() error {
		if _, ok, _ := informers.configMaps.GetStore().GetByKey("b/later"); !ok {
			return fmt.Errorf("not there")
		}
		return nil
	})
}

// checkRights: the rights that proxy/auth/doc.go asks for, on top of reading, are needed and
// enough.
func (s *certificateTest) checkRights(t *testing.T) {
	least := *s.certified
	p := watchfanAs(t, s.cluster.Ready.Kubeconfigs["reader"], s.flags...)
	p.waitReady(t)
	least.proxy, least.admin = p, p.admin(t)
	ours, _ := least.ways(t, s.dev)
	const list = "/api/v1/namespaces/a/configmaps?resourceVersion=0"
	if resp := ours.get(t, list); resp.status != http.StatusForbidden ||
		!bytes.Contains(resp.body, []byte(`User \"dev-reader\" cannot impersonate`)) {
		t.Errorf("without rights: %d %s", resp.status, resp.body)
	}
	if n := least.admin.metric(t, "watchfan_access_reviews_refused_total"); n == 0 {
		t.Error("no refused review is counted")
	}
	s.direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"clients"},"rules":[`+
			`{"apiGroups":["authorization.k8s.io"],"resources":["subjectaccessreviews"],"verbs":["create"]},`+
			`{"apiGroups":[""],"resources":["users","groups","serviceaccounts"],"verbs":["impersonate"]},`+
			`{"apiGroups":["authentication.k8s.io"],"resources":["*"],"verbs":["impersonate"]}]}`)
	s.direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"clients"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"clients"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dev-reader"}]}`)
	steady.Until(t, "list from the cache", func() error {
		if resp := ours.get(t, list); resp.status != http.StatusOK || least.cached(t) == 0 {
			return fmt.Errorf("%d %s", resp.status, resp.body)
		}
		return nil
	})
	for who, c := range s.certificates {
		least.same(t, who, c, whoami)
		least.same(t, who, c, row{uri: "/api/v1/namespaces/b/configmaps"})
	}
	least.same(t, "front", s.front, whoami.with("X-Remote-User", "joe", "X-Remote-Extra-K", "v"))
}

// checkRevocation: when the user of a client certificate loses a right, its open watch ends properly, and
// the next is refused (contract.md 6.6, A10). A watch of a user that keeps the right goes on.
func (s *certificateTest) checkRevocation(t *testing.T) {
	quick := *s.certified
	quick.proxy = privateWatchfan(t, s.cluster, append([]string{"--authorization-recheck-interval=1s",
		"--authorization-webhook-cache-authorized-ttl=1s"}, s.flags...)...)
	quick.proxy.waitReady(t)
	dev, _ := quick.ways(t, s.dev)
	root, _ := quick.ways(t, s.root)
	warm(t, []*target{root}, "/api/v1/configmaps")
	const uri = "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0"
	open, stays := dev.watch(t, uri), root.watch(t, uri)
	quick.proxy.admin(t).awaitWatchers(t, 2)
	s.direct.remove(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/dev")
	open.finish(t)
	if resp := dev.get(t, uri); resp.status != http.StatusForbidden {
		t.Errorf("the next watch: %d", resp.status)
	}
	stays.until(t, makeConfigMap(t, s.direct, "a", "afterwards", ""))
}

// checkMetrics: each kind of identity is counted, and no log or metric names a user or holds a
// secret.
func (s *certificateTest) checkMetrics(t *testing.T) {
	for _, kind := range []string{"certificate", "front-proxy", "own", "token"} {
		if kind == "own" && *overHTTP2 {
			continue // the insecure port is not used
		}
		if s.admin.metric(t, "watchfan_identified_requests_total", `identity="`+kind+`"`) == 0 {
			t.Errorf("no request as %s", kind)
		}
	}
	log, err := os.ReadFile(s.proxy.Log)
	if err != nil {
		t.Fatal(err)
	}
	metrics := s.admin.get(t, "/metrics").body
	for _, secret := range []string{"jane-of-devs", "none-of-them", "root-of-masters", "system:masters", "Jané",
		"Bearer", s.cluster.token(t, "admin"), s.cluster.token(t, "reader"), "BEGIN ", "X509SHA256"} {
		if bytes.Contains(log, []byte(secret)) || bytes.Contains(metrics, []byte(secret)) {
			t.Errorf("the log or the metrics say %q", secret)
		}
	}
}

// TestAuthorityRemoved: a certificate's watch ends when its authority is removed from the file.
// Watches of tokens, and of certificates whose authority stays, go on.
func TestAuthorityRemoved(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	stays, goes := c.authority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(authorities ...*authority) {
		var content []byte
		for _, a := range authorities {
			pem, err := os.ReadFile(a.File)
			if err != nil {
				t.Fatal(err)
			}
			content = append(content, pem...)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(stays, goes)
	p := privateWatchfan(t, c, "--client-ca-file", file, "--authorization-recheck-interval=1s")
	p.waitReady(t)
	s := &certified{cluster: c, proxy: p}
	const uri = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"
	gone, _ := s.ways(t, goes.client(t, "jane", "system:masters"))
	kept, _ := s.ways(t, stays.client(t, "joe", "system:masters"))
	ends := gone.watch(t, uri)
	goOn := []*recording{kept.watch(t, uri), p.secure(t, c.token(t, "reader")).watch(t, uri)}
	write(stays)
	ends.finish(t)
	last := makeConfigMap(t, c.direct(t), "default", "authority-removed", "")
	for _, w := range goOn {
		w.until(t, last)
	}
	if n := p.admin(t).metric(t, "watchfan_watches_ended_total", `reason="revoked"`); n != 1 {
		t.Errorf("%v watches were revoked", n)
	}
	if code := gone.get(t, "/api/v1/namespaces/default/configmaps").status; code != http.StatusUnauthorized {
		t.Errorf("got %d afterwards", code)
	}
}
