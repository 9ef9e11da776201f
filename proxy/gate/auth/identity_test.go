package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

func TestIdentify(t *testing.T) {
	f := func(want string, wantSecure string, headers ...string) {
		t.Helper()
		for _, secure := range []bool{false, true} {
			for _, anonymous := range []bool{true, false} {
				a := &Authenticator{anonymous: anonymous}
				x := proxytest.MustRead(t, "/api/v1/pods", headers...)
				if secure {
					x.Conn = proxytest.Conn{State: &tls.ConnectionState{}}
				}
				id, st := a.Identify(x)
				got := id.String()
				switch {
				case st != nil:
					got = fmt.Sprint(st.Code)
				case id.Kind == KindToken:
					got = id.Token
				}
				want := want
				if secure {
					want = wantSecure
				}
				if !anonymous && want == "anonymous" {
					want = "401"
				}
				if got != want {
					t.Errorf("secure=%v anonymous=%v %q: got %s, want %s", secure, anonymous, headers, got, want)
				}
			}
		}
	}
	f("own", "anonymous")
	f("own", "anonymous", "X-Remote-User: jane")
	f("t1", "t1", "Authorization: Bearer t1")
	f("t1", "t1", "authorization: bEARER t1")
	f("t1", "t1", "AUTHORIZATION:   bearer t1  ")
	f("t1", "t1", "Authorization: Bearer t1 rest")
	f("t1", "t1", "Authorization: Bearer t1", "Authorization: Bearer t2")
	f("401", "anonymous", "Authorization:")
	f("401", "anonymous", "Authorization: Bearer")
	f("401", "anonymous", "Authorization: Bearer ")
	f("401", "anonymous", "Authorization: Bearer  t1")
	f("401", "anonymous", "Authorization: Bearert1")
	f("401", "anonymous", "Authorization: Basic dTpw")
	f("401", "anonymous", "Authorization: Negotiate x", "Authorization: Bearer t1")

	// A WebSocket's subprotocols.
	const upgrade, websocket, one = "Connection: Upgrade", "Upgrade: websocket", "base64url.bearer.authorization.k8s.io.dDE"
	f("t1", "t1", upgrade, websocket, "Sec-WebSocket-Protocol: a, "+one)
	f("t1", "t1", upgrade, websocket, "sec-websocket-protocol: "+one, "Sec-WebSocket-Protocol: a")
	f("t1", "t1", upgrade, websocket, "Sec-WebSocket-Protocol: "+one+",")
	f("t1", "t1", upgrade, websocket, "Authorization: Basic dTpw", "Sec-WebSocket-Protocol: a,"+one)
	f("t2", "t2", upgrade, websocket, "Authorization: Bearer t2", "Sec-WebSocket-Protocol: a,"+one)
	f("own", "anonymous", "Sec-WebSocket-Protocol: a,"+one)
	f("own", "anonymous", upgrade, "Upgrade: h2c", "Sec-WebSocket-Protocol: a,"+one)
	f("own", "anonymous", upgrade, websocket, "Sec-WebSocket-Protocol: a, b")
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: "+one)
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: a,"+one+","+one)
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: a,"+one+"=")
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: a,"+one+"!")
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: a,base64url.bearer.authorization.k8s.io.dDEgdDI") // "t1 t2"
	f("401", "401", upgrade, websocket, "Sec-WebSocket-Protocol: a,base64url.bearer.authorization.k8s.io._w")      // 0xff
	f("401", "anonymous", upgrade, websocket, "Sec-WebSocket-Protocol: a,base64url.bearer.authorization.k8s.io.")
}

// A token among the subprotocols is in the identity alone, as in kube-apiserver. It stays where
// another credential has counted.
func TestWebSocketTokenIsRemoved(t *testing.T) {
	f := func(want []string, headers ...string) {
		t.Helper()
		x := proxytest.MustRead(t, "/api/v1/pods?watch=1", append(headers, "Connection: Upgrade", "Upgrade: websocket")...)
		if _, st := (&Authenticator{}).Identify(x); st != nil {
			t.Errorf("%q: %v", headers, st)
		}
		if got := x.Header.All("Sec-Websocket-Protocol"); !slices.Equal(got, want) {
			t.Errorf("%q: left %q, want %q", headers, got, want)
		}
	}
	const one = "base64url.bearer.authorization.k8s.io.dDE"
	f([]string{"a"}, "Sec-WebSocket-Protocol: "+one+", a")
	f([]string{"a,b"}, "Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: "+one+" ,b")
	f([]string{""}, "Sec-WebSocket-Protocol: "+one+",")
	f([]string{"a, " + one}, "Authorization: Bearer t2", "Sec-WebSocket-Protocol: a, "+one)
}

// kube-apiserver warns about extra space before a token, which it ignores.
func TestExtraSpace(t *testing.T) {
	f := func(header string, warns bool) {
		t.Helper()
		for _, subprotocol := range []bool{false, true} {
			headers := []string{"Authorization: " + header}
			if subprotocol {
				headers = append(headers, "Connection: Upgrade", "Upgrade: websocket",
					"Sec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.dDE")
			}
			x := proxytest.MustRead(t, "/api/v1/pods?watch=1", headers...)
			x.Conn = proxytest.Conn{State: &tls.ConnectionState{}}
			id, st := (&Authenticator{anonymous: true}).Identify(x)
			if st != nil || (id.Warning != "") != warns || (id.Kind == KindToken) != subprotocol {
				t.Errorf("%q: got %v with Warning %q, status %v", header, id.Kind, id.Warning, st)
			}
			x.Response.Reset()
			if WarnUnauthorized(x); x.Response.Header.Has("Warning") != warns {
				t.Errorf("%q: warns %v with 401, want %v", header, !warns, warns)
			}
		}
	}
	f("Bearer  t1", true)
	f("bEARER   t1", true)
	f("Bearer  t1 t2", true)
	f("Bearer \t", false)
	f("Bearer\t t1", false)
	f("Bearer", false)
	f("Bearer ", false)
	f("Basic  dTpw", false)
	f("", false)

	x := proxytest.MustRead(t, "/api/v1/pods", "Authorization: Bearer t1")
	if id, _ := (&Authenticator{}).Identify(x); id.Warning != "" {
		t.Errorf("a token has the Warning %q", id.Warning)
	}
}

func TestIdentityHidesToken(t *testing.T) {
	for _, format := range []string{"%v", "%s", "%+v", "%#v"} {
		for _, id := range []Identity{{Kind: KindToken, Token: "secret"},
			{Kind: KindCertificate, User: &UserInfo{Name: "secret"}}} {
			if got := fmt.Sprintf(format, id); strings.Contains(got, "secret") {
				t.Errorf("%s: got %s", format, got)
			}
		}
	}
}

// testCA signs certificates of clients.
type testCA struct{ *proxytest.Authority }

func newTestCA(t *testing.T) testCA {
	t.Helper()
	ca, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"),
		&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}})
	if err != nil {
		t.Fatal(err)
	}
	return testCA{ca}
}

// below returns an intermediate CA.
func (ca testCA) below(t *testing.T, template *x509.Certificate) testCA {
	t.Helper()
	middle, err := ca.Below(template)
	if err != nil {
		t.Fatal(err)
	}
	return testCA{middle}
}

// sign returns the certificates that a client with such a certificate presents.
func (ca testCA) sign(t *testing.T, template *x509.Certificate) []*x509.Certificate {
	t.Helper()
	pair, err := ca.Sign(template)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{pair.Leaf}
}

var forClients = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

// client returns the certificates that a client with this name and these groups presents.
func (ca testCA) client(t *testing.T, name string, groups ...string) []*x509.Certificate {
	t.Helper()
	return ca.sign(t,
		&x509.Certificate{ExtKeyUsage: forClients, Subject: pkix.Name{CommonName: name, Organization: groups}})
}

func (ca testCA) authorities(t *testing.T) *clientCAs {
	t.Helper()
	a, err := newClientCAs(ca.File, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A certificate's subject is a user (contract of k8s.io/apiserver pkg/authentication/request/x509).
func TestCertificateUser(t *testing.T) {
	ca, other := newTestCA(t), newTestCA(t)
	a := &Authenticator{clientCAs: ca.authorities(t), anonymous: true}
	header := proxytest.MustRead(t, "/", "Authorization: Bearer t", "X-Remote-User: somebody").Header

	jane, ok := a.identifyCertificate(header, ca.client(t, "jane", "dev", "ops"))
	if !ok || jane.Kind != KindCertificate || jane.User.Name != "jane" || jane.User.UID != "" {
		t.Fatalf("got %v %+v", ok, jane.User)
	}
	if got := fmt.Sprint(jane.User.Groups); got != "[dev ops system:authenticated]" {
		t.Errorf("groups: got %s", got)
	}
	certificates := ca.client(t, "joe", "system:unauthenticated")
	joe, _ := a.identifyCertificate(header, certificates)
	hash := fmt.Sprintf("X509SHA256=%x", sha256.Sum256(certificates[0].Raw))
	want := map[string][]string{"authentication.kubernetes.io/credential-id": {hash}}
	if !reflect.DeepEqual(joe.User.Extra, want) {
		t.Errorf("extra: got %v, want %v", joe.User.Extra, want)
	}
	if got := fmt.Sprint(joe.User.Groups); got != "[system:unauthenticated]" {
		t.Errorf("groups: got %s", got)
	}

	uids := func(values ...string) []*x509.Certificate {
		subject := pkix.Name{CommonName: "jane"}
		for _, v := range values {
			subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{Type: uidOID, Value: v})
		}
		return ca.sign(t, &x509.Certificate{ExtKeyUsage: forClients, Subject: subject})
	}
	if id, ok := a.identifyCertificate(header, uids("u-1")); !ok || id.User.UID != "u-1" {
		t.Errorf("uid: got %v %+v", ok, id.User)
	}
	expired := &x509.Certificate{ExtKeyUsage: forClients, Subject: pkix.Name{CommonName: "jane"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)}
	server := ca.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		Subject: pkix.Name{CommonName: "jane"}})
	for what, certificates := range map[string][]*x509.Certificate{
		"another authority": other.client(t, "jane"),
		"no name":           ca.client(t, ""),
		"two uids":          uids("a", "b"),
		"an empty uid":      uids(""),
		"expired":           ca.sign(t, expired),
		"a server's":        server,
		"none":              nil,
	} {
		if id, ok := a.identifyCertificate(header, certificates); ok {
			t.Errorf("%s: got %+v", what, id.User)
		}
	}

	// An intermediate CA.
	middle := ca.below(t, &x509.Certificate{Subject: pkix.Name{CommonName: "middle"}})
	chain := append(middle.client(t, "jane"), middle.Certificate())
	if _, ok := a.identifyCertificate(header, chain); !ok {
		t.Error("a chain is refused")
	}
	if _, ok := a.identifyCertificate(header, chain[:1]); ok {
		t.Error("half a chain is taken")
	}
}

// kube-apiserver's --requestheader flags.
func TestFrontProxy(t *testing.T) {
	clients, fronts := newTestCA(t), newTestCA(t)
	a := &Authenticator{clientCAs: clients.authorities(t), Front: FrontProxies{
		cas:   fronts.authorities(t),
		names: []string{"front", "second"},
		headers: userHeaders{
			name:   []string{"X-Remote-User", "x-other-user"},
			uid:    []string{"X-Remote-Uid"},
			groups: []string{"X-Remote-Group", "X-Team"},
			extra:  []string{"X-Remote-Extra-"},
		},
	}}
	f := func(want string, certificates []*x509.Certificate, headers ...string) {
		t.Helper()
		id, ok := a.identifyCertificate(proxytest.MustRead(t, "/", headers...).Header, certificates)
		got := "nobody"
		if ok {
			u := id.User
			got = fmt.Sprint(id, " ", u.Name, " ", u.UID, " ", u.Groups)
			for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
				if k != credentialIDKey {
					got += fmt.Sprint(" ", k, u.Extra[k])
				}
			}
		}
		if got != want {
			t.Errorf("%q:\n got %s\nwant %s", headers, got, want)
		}
	}
	front := fronts.client(t, "front")
	f("front-proxy jane  [system:authenticated]", front, "X-Remote-User: jane", "X-Remote-User: joe")
	f("front-proxy joe  [system:authenticated]", front, "X-Remote-User:", "X-Other-User: joe")
	f("front-proxy jane u [a b c system:authenticated] a/b[1 2] c[3] d%zz[4]", front, "x-remote-user: jane",
		"X-REMOTE-UID: u", "X-Remote-Group: a", "X-Team: c", "X-Remote-Group: b",
		"X-Remote-Group:", "X-Remote-Extra-A%2Fb: 1", "x-remote-extra-a%2fB: 2", "X-Remote-Extra-C: 3",
		"X-Remote-Extra-d%zz: 4")
	f("front-proxy system:anonymous  []", front, "X-Remote-User: system:anonymous")
	f("nobody", front)
	f("nobody", front, "X-Remote-Group: system:masters")
	f("nobody", fronts.client(t, "third"), "X-Remote-User: jane")
	f("certificate third  [system:authenticated]", clients.client(t, "third"), "X-Remote-User: jane")
	f("certificate front  [system:authenticated]", clients.client(t, "front"), "X-Remote-User: jane",
		"X-Remote-Group: system:masters")
	a.Front.names = nil
	f("front-proxy jane  [system:authenticated]", fronts.client(t, "third"), "X-Remote-User: jane")
	a.clientCAs, a.Front.cas = fronts.authorities(t), nil
	f("certificate front  [system:authenticated]", front, "X-Remote-User: jane")

	for name, want := range map[string]bool{"X-Remote-User": true, "x-remote-anything": true, "X-Team": true,
		"X-OTHER-USER": true, "X-Teams": false, "X-Remot": false} {
		if got := a.Front.SpeaksBy(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Impersonate replaces the client's own Impersonate-* headers, and the headers carry a user
// unchanged.
func TestImpersonateHeaders(t *testing.T) {
	u := &UserInfo{Name: "jané", UID: "u", Groups: []string{"a", "", "b c"},
		Extra: map[string][]string{credentialIDKey: {"X"}, "UPPER%/é": {"1", "2"}, "": {"e"}}}
	if !u.expressible() {
		t.Fatal("not expressible")
	}
	uncanonical := strings.ToLower("Impersonate-Group")
	h := http.Header{"Impersonate-User": {"root"}, "Impersonate-Group": {"system:masters"},
		uncanonical: {"system:masters"}, "Impersonate-Extra-K": {"v"}, "Impersonate-New": {"x"}, "Accept": {"*/*"}}
	u.Impersonate(h, true)
	request := []string{}
	for name, values := range h {
		for _, v := range values {
			request = append(request, name+": "+v)
		}
	}
	if len(h[uncanonical])+len(h["Impersonate-New"]) != 0 || h.Get("Accept") == "" {
		t.Errorf("got %v", h)
	}
	got := impersonated(proxytest.MustRead(t, "/", request...).Header)
	if !reflect.DeepEqual(got, u) {
		t.Errorf("got %+v, want %+v", got, u)
	}
	for _, bad := range []*UserInfo{
		{}, {Name: " jane"}, {Name: "jane\t"}, {Name: "a\nb"}, {Name: "a\x00"}, {Name: "a\x7f"}, {Name: "a\xff"},
		{Name: "j", UID: "u "}, {Name: "j", Groups: []string{"system:masters "}},
		{Name: "j", Extra: map[string][]string{"k": {" v"}}}, {Name: "j", Extra: map[string][]string{"k\xff": {"v"}}},
	} {
		if bad.expressible() {
			t.Errorf("%+v is expressible", bad)
		}
	}
}

// A node is named by its name alone only if that gives it the groups that it has. A user of a node's
// name without groups is never taken for the node.
func TestImpersonateNodes(t *testing.T) {
	const n1 = "system:node:n1"
	hash, nodes := map[string][]string{credentialIDKey: {"X"}}, []string{"system:nodes", "system:authenticated"}
	for want, users := range map[string][]UserInfo{
		"": {{Name: n1, Groups: nodes, Extra: hash},
			{Name: n1 + ".example.com", Groups: []string{"system:authenticated", "system:nodes"}}},
		"system:authenticated": {{Name: n1}, {Name: n1, Groups: []string{"system:authenticated"}, Extra: hash}},
		"system:nodes system:authenticated": {{Name: n1, UID: "u", Groups: nodes}, {Name: "jane", Groups: nodes},
			{Name: "system:node:N_1", Groups: nodes}, {Name: n1, Groups: nodes, Extra: map[string][]string{"k": {"v"}}},
			{Name: n1, Groups: nodes, Extra: map[string][]string{"k": {}, credentialIDKey: {"X"}}}},
		"system:nodes system:masters system:authenticated": {
			{Name: n1, Groups: []string{"system:nodes", "system:masters", "system:authenticated"}}},
	} {
		for _, u := range users {
			for _, byName := range []bool{true, false} {
				h := make(http.Header)
				u.Impersonate(h, byName)
				want := want
				if want == "" && !byName {
					want = strings.Join(u.Groups, " ")
				}
				got := strings.Join(h[impersonateGroup], " ")
				if got != want || h.Get(ImpersonateUser) != u.Name || want == "" && len(h) != 1 {
					t.Errorf("%+v, by name %v: got %v", u, byName, h)
				}
			}
		}
	}
}

func FuzzImpersonate(f *testing.F) {
	f.Add("jane", "", "dev", "a/B%", "v")
	f.Add(" j", "u", "\r\nX: y", "", "é")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value string) {
		u := &UserInfo{Name: name, UID: uid, Groups: []string{group}, Extra: map[string][]string{key: {value}}}
		if !u.expressible() {
			return
		}
		h := make(http.Header)
		u.Impersonate(h, true)
		var b strings.Builder
		h.Write(&b)
		got := impersonated(proxytest.MustRead(t, "/",
			strings.Split(strings.TrimSuffix(b.String(), "\r\n"), "\r\n")...).Header)
		if !reflect.DeepEqual(got, u) {
			t.Fatalf("got %+v, want %+v", got, u)
		}
	})
}

// subjects answers reviews about users: "yes", "no" or an HTTP code, by the question or else by the
// user's name.
type subjects map[string]string

func (s subjects) answer(id Identity, path string, body []byte) (int, string, error) {
	var review accessReview
	if path == "/readyz" {
		return 200, "ok", nil
	}
	if path != reviewPath || id.Kind != KindOwn || json.Unmarshal(body, &review) != nil ||
		review.Kind != "SubjectAccessReview" {
		return 500, "", nil
	}
	a := review.Spec.ResourceAttributes
	answer, ok := s[strings.Join([]string{review.Spec.User, a.Verb, a.Resource + a.Subresource, a.Namespace, a.Name},
		" ")]
	if !ok {
		answer = s[review.Spec.User]
	}
	var code int
	switch answer {
	case "yes":
		return 201, `{"kind":"SubjectAccessReview","status":{"allowed":true}}`, nil
	case "no":
		return 201, `{"kind":"SubjectAccessReview","status":{"allowed":false}}`, nil
	case "self":
		return 201, `{"kind":"SelfSubjectAccessReview","status":{"allowed":true}}`, nil
	}
	fmt.Sscan(answer, &code)
	return code, `{"kind":"SubjectAccessReview","status":{"allowed":true}}`, nil
}

func byCertificate(name string, groups ...string) Identity {
	return Identity{Kind: KindCertificate, User: &UserInfo{Name: name, Groups: groups}}
}

// A known user is reviewed with the proxy's own credential and all that the proxy knows of it. The
// cache of decisions keeps users apart.
func TestAllowedUser(t *testing.T) {
	_, review := ReviewFor(Identity{Kind: KindCertificate,
		User: &UserInfo{Name: "jane", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}},
		AttributesOf(parse(t, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1")))
	if want := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","uid":"u",` +
		`"groups":["g"],"extra":{"k":["v"]},` +
		`"resourceAttributes":{"verb":"watch","version":"v1","resource":"pods",` +
		`"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In",` +
		`"values":["n1"]}]}}}}`; string(review) != want {
		t.Errorf("review:\n got %s\nwant %s", review, want)
	}
	synctest.Test(t, func(t *testing.T) {
		up := &proxytest.FakeUpstream[Identity]{Answer: subjects{"jane": "yes", "joe": "no", "ill": "500",
			"unasked": "403", "odd": "self"}.answer}
		a := authorizerOf(up)
		list := parse(t, "/api/v1/pods")
		f := func(id Identity, want bool, wantAsked int) {
			t.Helper()
			before := up.Count()
			if got := a.allowed(t.Context(), id, list); got != want || up.Count()-before != wantAsked {
				t.Errorf("%+v: got %v and %d questions, want %v and %d", id.User, got,
					up.Count()-before, want, wantAsked)
			}
		}
		f(byCertificate("jane"), true, 1)
		f(byCertificate("jane"), true, 0)
		f(byCertificate("jane", "g"), true, 1)
		f(Identity{Kind: KindFrontProxy, User: &UserInfo{Name: "jane"}}, true, 0)
		f(byCertificate("joe"), false, 1)
		f(byCertificate("joe"), false, 0)
		f(byCertificate("ill"), false, 1)
		f(byCertificate("ill"), false, 1)
		f(byCertificate("unasked"), false, 1) // watchfan may not ask, so there is no answer about the user
		f(byCertificate("unasked"), false, 1)
		f(byCertificate("odd"), false, 1)
		f(Identity{}, false, 0)
	})
}

// A user that the proxy impersonates acts as another only if kube-apiserver allows each value.
func TestActAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: subjects{
			"admin": "yes", "jane": "no", "ill": "500",
			"jane impersonate users  joe": "yes", "jane impersonate groups  dev": "yes",
			"jane impersonate serviceaccounts ns sa": "yes", "jane impersonate uids  u": "yes",
			"jane impersonate userextrasa/b  v": "yes", "deputy": "no",
			"deputy impersonate serviceaccounts ns SA": "yes", "deputy impersonate serviceaccounts Ns sa": "yes",
			"deputy impersonate serviceaccounts a.b sa": "yes",
		}.answer})
		f := func(want string, id Identity, headers ...string) {
			t.Helper()
			as, st := a.ActAs(t.Context(), id, proxytest.MustRead(t, "/", headers...).Header)
			got := as.String()
			switch {
			case st != nil:
				got = fmt.Sprint(st.Code, " ", st.Message)
			case as.User != nil:
				got = as.User.Name
			}
			if got != want {
				t.Errorf("%q:\n got %s\nwant %s", headers, got, want)
			}
		}
		admin, jane := byCertificate("admin"), byCertificate("jane")
		f("token", byToken("t"), "Impersonate-User: joe")
		f("own", Identity{Kind: KindOwn}, "Impersonate-User: joe")
		f("admin", admin)
		f("admin", admin, "Impersonate-User:", "Impersonate-New: x")
		f("joe", admin, "Impersonate-User: joe", "Impersonate-Group: system:masters")
		f("joe", jane, "impersonate-user: joe", "Impersonate-Group: dev", "Impersonate-Uid: u",
			"Impersonate-Extra-A%2fB: v")
		f("system:serviceaccount:ns:sa", jane, "Impersonate-User: system:serviceaccount:ns:sa")
		f("anonymous", jane, "Impersonate-Group: dev") // kube-apiserver: 400
		f(`403 users "root" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the `+
			`cluster scope`, jane, "Impersonate-User: root")
		f(`403 groups "system:masters" is forbidden: User "jane" cannot impersonate resource "groups" in API group `+
			`"" at the cluster scope`, jane, "Impersonate-User: joe", "Impersonate-Group: dev",
			"Impersonate-Group: system:masters")
		f(`403 serviceaccounts "other" is forbidden: User "jane" cannot impersonate resource "serviceaccounts" in `+
			`API group "" in the namespace "ns"`, jane, "Impersonate-User: system:serviceaccount:ns:other")
		for _, name := range []string{"ns:SA", "Ns:sa", "a.b:sa", "ns:sa:sa", "ns:", ":sa"} { // no account's
			name = "system:serviceaccount:" + name
			f(`403 users "`+name+`" is forbidden: User "deputy" cannot impersonate resource "users" in API group "" at `+
				`the cluster scope`, byCertificate("deputy"), "Impersonate-User: "+name)
		}
		f(`403 uids.authentication.k8s.io "w" is forbidden: User "jane" cannot impersonate resource "uids" in API `+
			`group "authentication.k8s.io" at the cluster scope`, jane, "Impersonate-User: joe", "Impersonate-Uid: w")
		f(`403 userextras.authentication.k8s.io "w" is forbidden: User "jane" cannot impersonate resource `+
			`"userextras/a/b" in API group "authentication.k8s.io" at the cluster scope`, jane, "Impersonate-User: joe",
			"Impersonate-Extra-a%2fb: w")
		f("503 kube-apiserver did not say whether this client may impersonate another", byCertificate("ill"),
			"Impersonate-User: joe")
		var many []string
		for i := range 800 {
			many = append(many, fmt.Sprint("Impersonate-Group: ", i))
		}
		many = append(many, "Impersonate-User: joe")
		f("joe", admin, many...)
		f(`403 groups "0" is forbidden: User "jane" cannot impersonate resource "groups" in API group "" at the `+
			`cluster scope`, jane, many...)
	})
}

// A stranger's token of a million dots costs little memory.
func TestClaimsOfDots(t *testing.T) {
	dots := strings.Repeat(".", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	TokenSubject(dots)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 { // cut at each dot, it takes 16 MiB
		t.Errorf("%d bytes", got)
	}
}
