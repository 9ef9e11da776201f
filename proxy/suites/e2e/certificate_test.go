package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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

// client returns a certificate for a user.
func (a *authority) client(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	certificate, err := a.Client(name, groups, 0)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
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
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		keyFile: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
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
		"requestheader-username-headers=X-Remote-User", "requestheader-uid-headers=X-Remote-Uid",
		"requestheader-group-headers=X-Remote-Group", "requestheader-extra-headers-prefix=X-Remote-Extra-"}
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
	s.direct.allow(t, "a", "dev", "Group devs", "* /configmaps", "get,list,watch /pods", "create,get /pods/exec")
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
	ours = newTarget("watchfan/certificate", "https://"+s.proxy.Ports.Secure, config)
	theirs = newTarget("kube-apiserver/certificate", s.cluster.Ready.Server, config)
	t.Cleanup(ours.close)
	t.Cleanup(theirs.close)
	return ours, theirs
}

// same compares a row both ways.
func (s *certified) same(t *testing.T, who string, c *tls.Certificate, r row) {
	t.Helper()
	ours, theirs := s.ways(t, c)
	if err := r.compare(t, theirs, ours); err != nil {
		t.Errorf("%s %s as %s with %v: %v", r.method, r.uri, who, r.header, err)
	}
}

var createdAt = regexp.MustCompile(`"creationTimestamp":\s?"[^"]*"`)

// certificateTest is what the parts of TestCertificates share.
type certificateTest struct {
	*certified
	dev          *tls.Certificate
	certificates map[string]*tls.Certificate // of users, by name
}

// TestCertificates: through the TLS port a client certificate, and what a front proxy says, count
// as much as at kube-apiserver: the same user, the same answers and the same refusals, whether a
// cache answers or not (contract.md A01–A09, 6.1).
func TestCertificates(t *testing.T) {
	parallel(t)
	s := &certificateTest{certified: newCertified(t)}
	s.dev = s.users.client(t, "jane-of-devs", "devs", "ops")
	uid, err := s.users.Sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Subject: pkix.Name{CommonName: "has-uid",
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid-1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.certificates = map[string]*tls.Certificate{"dev": s.dev, "none": s.users.client(t, "none-of-them"), "uid": uid,
		"root": s.users.client(t, "root-of-masters", "system:masters"), "node": s.users.client(t, "system:node:n1", "system:nodes")}
	t.Run("requests", s.checkRequests)
	t.Run("impersonation", s.checkImpersonation)
	t.Run("kubectl", s.checkKubectl)
	t.Run("rights", s.checkRights)
	for _, kind := range []string{"certificate", "front-proxy", "own", "token"} {
		if kind == "own" && *overHTTP2 {
			continue // the insecure port is not used
		}
		if s.admin.metric(t, "watchfan_identified_requests_total", `identity="`+kind+`"`) == 0 {
			t.Errorf("no request as %s", kind)
		}
	}
	secrets := []string{"jane-of-devs", "none-of-them", "root-of-masters", "system:masters", "Jané", "Bearer",
		s.cluster.token(t, "admin"), s.cluster.token(t, "reader"), "BEGIN ", "X509SHA256"}
	checkLog(t, s.proxy, secrets...)
	metrics := string(s.admin.get(t, "/metrics").body)
	if i := slices.IndexFunc(secrets, func(secret string) bool { return strings.Contains(metrics, secret) }); i >= 0 {
		t.Errorf("the metrics say %.6s…", secrets[i])
	}
}

// checkRequests compares what each certificate may do.
func (s *certificateTest) checkRequests(t *testing.T) {
	s.direct.allow(t, "", "imp", "Group devs", "impersonate /users joe", "impersonate /groups devs", "impersonate /serviceaccounts SA")
	ours, theirs := s.ways(t, s.dev)
	steady.Until(t, "right to impersonate", func() error {
		resp := theirs.do(t, http.MethodGet, "/version", http.Header{"Impersonate-User": {"joe"}}, "")
		if resp.status != http.StatusOK {
			return fmt.Errorf("%d %s", resp.status, resp.body)
		}
		return nil
	})
	by := map[string][]row{}
	for who := range s.certificates {
		by[who] = requests(t, "rights", nil)
	}
	for _, r := range requests(t, "certificates", map[string]string{"READER": s.cluster.token(t, "reader")}) {
		who, cached, _ := strings.Cut(r.id, ":")
		r.cached = cached != ""
		by[who] = append(by[who], r)
	}
	all := map[string]*tls.Certificate{"front": s.fronts.client(t, "front"), "stranger": s.fronts.client(t, "stranger"),
		"foreign": newAuthority(t).client(t, "root-of-masters", "system:masters")}
	maps.Copy(all, s.certificates)
	var comparing sync.WaitGroup
	gate := make(chan struct{}, 2) // a watch of five seconds does not wait longer for its review
	for who, rows := range by {
		ours, theirs := s.ways(t, all[who])
		comparing.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			checkAll(t, rows, theirs, ours)
		})
	}
	comparing.Wait()
	ours.create(t, "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"by-jane"}}`)
	ours.remove(t, "/api/v1/namespaces/a/configmaps/by-jane")
}

// checkImpersonation: a refusal names the certificate's user. kube-apiserver's names the kinds of impersonation that it
// knows as well, so the whole is not compared.
func (s *certificateTest) checkImpersonation(t *testing.T) {
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
		got, want := ours.do(t, whoami.method, whoami.uri, h, whoami.body), theirs.do(t, whoami.method, whoami.uri, h, whoami.body)
		if got.status != http.StatusForbidden || want.status != http.StatusForbidden ||
			!bytes.Contains(got.body, []byte(`User \"jane-of-devs\" cannot impersonate`)) {
			t.Errorf("%q: %d %s\nkube-apiserver: %d %s", headers, got.status, got.body, want.status, want.body)
		}
	}
}

// checkKubectl: kubectl prints the same with a certificate.
func (s *certificateTest) checkKubectl(t *testing.T) {
	certFile, keyFile := certificateFiles(t, s.dev)
	way := func(name, server string) kubectlWay {
		return newKubectl(t, t.TempDir(), name, "-n", "a", "--server", server, "--insecure-skip-tls-verify", "--client-certificate", certFile,
			"--client-key", keyFile)
	}
	ways := []kubectlWay{way("straight", s.cluster.Ready.Server), way("secure", "https://"+s.proxy.Ports.Secure)}
	for _, args := range []string{"auth whoami --as joe --as-group devs", "auth can-i --list", "get configmap x -o yaml", "exec p1 -- true",
		"create configmap dry --dry-run=server -o name"} {
		sameWords(t, ways, nil, strings.Fields(args)...)
	}
}

// checkRights: the rights that proxy/gate/auth/doc.go asks for, on top of reading, are needed and
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
	s.direct.allow(t, "", "clients", "User dev-reader", "create authorization.k8s.io/subjectaccessreviews",
		"impersonate /users,groups,serviceaccounts", "impersonate authentication.k8s.io/*")
	warm(t, []*target{ours}, "/api/v1/namespaces/a/configmaps")
	for who, c := range s.certificates {
		least.same(t, who, c, whoami)
		least.same(t, who, c, row{uri: "/api/v1/namespaces/b/configmaps"})
	}
	least.same(t, "front", s.fronts.client(t, "front"), whoami.with("X-Remote-User", "joe", "X-Remote-Extra-K", "v"))
}

// TestAuthorityRemoved: a certificate's watch ends when its authority is removed from the file.
// Watches of tokens, and of certificates whose authority stays, go on.
func TestAuthorityRemoved(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	stays, goes := c.authority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content ...[]byte) {
		if err := os.WriteFile(file, slices.Concat(content...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(stays.PEM(), goes.PEM())
	p := privateWatchfan(t, c, "--client-ca-file", file, "--authorization-recheck-interval=1s")
	p.waitReady(t)
	s := &certified{cluster: c, proxy: p}
	const uri = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"
	gone, _ := s.ways(t, goes.client(t, "jane", "system:masters"))
	kept, _ := s.ways(t, stays.client(t, "joe", "system:masters"))
	kept.warmAs(t, "/api/v1/namespaces/default/configmaps", jsonType)
	ends := gone.watch(t, uri)
	goOn := []*recording{kept.watch(t, uri), p.secure(t, c.token(t, "reader")).watch(t, uri)}
	write(stays.PEM())
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
