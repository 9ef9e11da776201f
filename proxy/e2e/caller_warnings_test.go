package e2e_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// TestCallersWarnings: kube-apiserver warns the holder of a token that was made for a Secret. Each
// answer to the holder has that Warning, also if it comes from a cache, and no answer to anybody else
// has it, also if it is the proxy that holds such a token.
func TestCallersWarnings(t *testing.T) {
	parallel(t)
	c, _ := quietCluster(t)
	direct := c.direct(t)
	legacy := legacyToken(t, c, direct, "warned")
	certificate := c.authority(t).client(t, "warned-user")
	direct.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"warned"},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
		`"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"warned"},`+
		`{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"warned-user"}]}`)
	withToken, withCertificate := c.as(t, ""), c.as(t, "")
	withToken.token = legacy
	withCertificate.config.Certificates = []tls.Certificate{*certificate}
	withCertificate = newTarget("kube-apiserver", withCertificate.base, withCertificate.config)
	t.Cleanup(withCertificate.close)

	usual := privateWatchfan(t, c)
	warned := watchfanAs(t, kubeconfigWith(t, c, legacy), "--client-ca-file="+c.authority(t).File)
	user := newTarget("watchfan/certificate", "https://"+warned.ports.Secure,
		&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*certificate}})
	t.Cleanup(user.close)
	for _, p := range []*watchfan{usual, warned} {
		p.waitReady(t)
		// The holder's requests start the lanes, and may pass through until these are filled.
		checkWarnings(t, 1, p.secure(t, legacy), withToken)
		checkWarnings(t, 1, p.secure(t, legacy).http2(), withToken)
		checkWarnings(t, 0, p.secure(t, c.token(t, "admin")), direct)
		if n := checkWarnings(t, 1, p.secure(t, legacy), withToken); n == 0 {
			t.Error("no answer comes from a cache")
		}
	}
	checkWarnings(t, 0, usual.plain(t), direct)
	if !*overHTTP2 {
		checkWarnings(t, 1, warned.plain(t), withToken)
	}
	checkWarnings(t, 0, user, withCertificate)
}

// checkWarnings compares the Warnings of answers with kube-apiserver's. n are about the credential;
// those about Endpoints come on top. It returns how many answers come from a cache.
func checkWarnings(t *testing.T, n int, ours, theirs *target) (fromCache int32) {
	t.Helper()
	var cached atomic.Int32
	var wg sync.WaitGroup
	for _, path := range []string{"/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/endpoints"} {
		for _, uri := range []string{
			path, path + "?resourceVersion=0", path + "?resourceVersion=0&limit=1", path + "/none?resourceVersion=0", path + "/none",
			path + "?watch=1", path + "?watch=1&resourceVersion=0",
			path + "?fieldSelector=nothing", "/apis/none", "/version",
		} {
			for _, accepts := range []string{jsonType, protoType, tableType} {
				wg.Go(func() {
					got, err := ours.look(uri, accept(accepts))
					want, theirErr := theirs.look(uri, accept(accepts))
					if err != nil || theirErr != nil {
						t.Errorf("%s: %v, %v", uri, err, theirErr)
						return
					}
					g, w := got.header["Warning"], want.header["Warning"]
					if got.status != want.status || !slices.Equal(g, w) {
						t.Errorf("%s as %s from %s: %d, Warning %q, want %d, %q", uri, accepts, ours.name, got.status, g, want.status, w)
					}
					if strings.Contains(fmt.Sprint(w), "TokenRequest") != (n == 1) {
						t.Errorf("%s from %s: Warning %q", uri, theirs.name, w)
					}
					if proxytest.FromCache(got.header) {
						cached.Add(1)
					}
				})
			}
		}
	}
	wg.Wait()
	return cached.Load()
}

// legacyToken makes a service account in the namespace default, with a token as kube-controller-manager
// made it up to 1.23: in a Secret that the account names.
func legacyToken(t *testing.T, c *cluster, d *target, name string) string {
	t.Helper()
	var account struct{ Metadata struct{ UID string } }
	resp := d.do(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", nil, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	if err := json.Unmarshal(resp.body, &account); err != nil || resp.status != http.StatusCreated {
		t.Fatalf("create service account: %d: %s", resp.status, resp.body)
	}
	content, err := os.ReadFile(filepath.Join(c.Dir, "pki", "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "kubernetes.io/serviceaccount/"
	token := signedToken(t, key, map[string]string{"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:" + name,
		prefix + "namespace": "default", prefix + "secret.name": name, prefix + "service-account.name": name,
		prefix + "service-account.uid": account.Metadata.UID})
	d.create(t, "/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{`+
		`"kubernetes.io/service-account.name":%q,"kubernetes.io/service-account.uid":%q}},`+
		`"type":"kubernetes.io/service-account-token","stringData":{"token":%q}}`, name, name, account.Metadata.UID, token))
	d.patch(t, "/api/v1/namespaces/default/serviceaccounts/"+name, fmt.Sprintf(`{"secrets":[{"name":%q}]}`, name))
	return token
}

// signedToken returns a JSON Web Token (RFC 7519), signed with ES256 (RFC 7518, section 3.4).
func signedToken(t *testing.T, key *ecdsa.PrivateKey, claims map[string]string) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	hash := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature)
}

// kubeconfigWith returns a file with the admin's kubeconfig and another token.
func kubeconfigWith(t *testing.T, c *cluster, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Ready.Kubeconfigs["admin"])
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token, user.TokenFile = token, ""
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
