package e2e_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"
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
	direct.allow(t, "", "warned-user", "User warned-user", "* */*")
	direct.allow(t, "", "warned", "User system:serviceaccount:default:warned", "* */*")
	holder := c.as(t, "")
	holder.token = legacy
	const configMaps, endpoints = "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/endpoints"
	rows := requests(t, "warnings", nil)
	for way, warns := range map[*target]bool{holder: true, direct: false} {
		if w := way.get(t, configMaps).header.Get("Warning"); strings.Contains(w, "TokenRequest") != warns {
			t.Errorf("%s: Warning %q", way.name, w)
		}
	}
	usual := privateWatchfan(t, c)
	warned := watchfanAs(t, programWay{direct, c.Ready.CAFile}.kubeconfig(t, &api.AuthInfo{Token: legacy}),
		"--client-ca-file="+c.authority(t).File)
	user, withCertificate := (&certified{cluster: c, proxy: warned}).ways(t, certificate)
	for _, p := range []*watchfan{usual, warned} {
		p.waitReady(t)
		ours := p.secure(t, legacy)
		for _, path := range []string{configMaps, endpoints} {
			ours.warmAs(t, path, jsonType, protoType)
		}
		http2 := ours.http2()
		t.Cleanup(http2.close)
		checkAll(t, rows, holder, ours, http2)
		checkAll(t, rows, direct, p.secure(t, c.token(t, "admin")))
	}
	checkAll(t, rows, direct, usual.plain(t))
	if !*overHTTP2 {
		checkAll(t, rows, holder, warned.plain(t))
	}
	checkAll(t, rows, withCertificate, user)
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
