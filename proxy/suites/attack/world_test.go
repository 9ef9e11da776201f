package attack_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// What a cluster holds besides the objects of the steady writer.
const (
	configMapsOfTenant = 200
	configMapsOfNobody = 1000 // in namespace bulk
	secretsOfTenant    = 10
	podsOfTenant       = 20

	credentialsLast = 24 * time.Hour
)

// hostileTenants are the attackers' own namespaces.
var hostileTenants = []string{"x0", "x1"}

// world is a cluster with its tenants, their objects and rights.
type world struct {
	cluster *proxytest.Cluster
	admin   way   // straight at kube-apiserver
	honest  []way // of users with a token or a certificate, without a server
	hostile hostile
}

// hostile are the attackers' credentials. Only with Everything can they read secrets of others.
type hostile struct {
	Tenants    []string // tokens of users with all rights in their own namespace, in the order of hostileTenants
	Crawler    string   // token of a user that may read all ConfigMaps and Pods
	Everything string   // token of a user that may read all of all groups, which exist or not
}

// newWorld makes everything in the cluster. kube-apiserver issues tokens once it knows the
// namespace.
func newWorld(ctx context.Context, cluster *proxytest.Cluster, objects []*object) (*world, error) {
	token, err := cluster.Token("admin")
	if err != nil {
		return nil, err
	}
	w := &world{cluster: cluster, admin: way{name: "admin", base: cluster.Ready.Server, token: token,
		tls: &tls.Config{InsecureSkipVerify: true}}}
	admin := newClient(w.admin)
	defer admin.close()
	if err := w.makeRights(ctx, admin); err != nil {
		return nil, err
	}
	if err := w.makeUsers(ctx, admin); err != nil {
		return nil, err
	}
	return w, w.makeObjects(ctx, objects)
}

const rbac = "/apis/rbac.authorization.k8s.io/v1/"

// makeRights makes the namespaces, and the rights of their users.
func (w *world) makeRights(ctx context.Context, admin *client) error {
	var errs []error
	create := func(uri, format string, args ...any) {
		errs = append(errs, admin.create(ctx, uri, fmt.Sprintf(format, args...)))
	}
	for name, rule := range map[string]string{
		"tenant":     `"apiGroups":[""],"resources":["configmaps","secrets","pods"],"verbs":["*"]`,
		"controller": `"apiGroups":[""],"resources":["configmaps","secrets","pods"],"verbs":["*"]`,
		"crawler":    `"apiGroups":[""],"resources":["configmaps","pods"],"verbs":["get","list","watch"]`,
		"everything": `"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]`,
	} {
		create(rbac+"clusterroles", `{"metadata":{"name":"attack-%s"},"rules":[{%s}]}`, name, rule)
	}
	for _, ns := range append(w.namespaces(), "bulk", "attack-controller", "attack-crawler", "attack-everything") {
		create("/api/v1/namespaces", `{"metadata":{"name":%q}}`, ns)
		subjects := fmt.Sprintf(`[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:serviceaccounts:%s"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"%s"}]`, ns, ns)
		kind, uri, role := "RoleBinding", rbac+"namespaces/"+ns+"/rolebindings", "attack-tenant"
		if strings.HasPrefix(ns, "attack-") {
			kind, uri, role = "ClusterRoleBinding", rbac+"clusterrolebindings", ns
		}
		create(uri, `{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"attack-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":%s}`, kind, ns, role, subjects)
	}
	return errors.Join(errs...)
}

// namespaces returns the namespaces of all tenants, honest or not.
func (w *world) namespaces() (all []string) {
	for i := range tenants {
		all = append(all, tenantName(i))
	}
	return append(all, hostileTenants...)
}

// makeUsers makes an identity with a token and one with a certificate for each honest tenant, three
// controllers, and the attackers.
func (w *world) makeUsers(ctx context.Context, admin *client) error {
	authority, err := w.cluster.Authority()
	if err != nil {
		return err
	}
	issue := func(namespace, name string) string {
		token, failed := issueToken(ctx, admin, namespace, name)
		err = errors.Join(err, failed)
		return token
	}
	add := func(namespace, name, tenant string, certified bool) {
		user := way{name: namespace + "/" + name, tenant: tenant, tls: &tls.Config{InsecureSkipVerify: true}}
		if certified {
			if certificate, failed := authority.Client(user.name, []string{namespace}, credentialsLast); failed != nil {
				err = errors.Join(err, failed)
			} else {
				user.tls.Certificates = []tls.Certificate{*certificate}
			}
		} else {
			user.token = issue(namespace, name)
		}
		w.honest = append(w.honest, user)
	}
	for i := range tenants {
		add(tenantName(i), "app", tenantName(i), false)
		add(tenantName(i), "person", tenantName(i), true)
	}
	for i := range 3 {
		add("attack-controller", fmt.Sprintf("controller-%d", i), "", i == 2)
	}
	for _, ns := range hostileTenants {
		w.hostile.Tenants = append(w.hostile.Tenants, issue(ns, "mallory"))
	}
	w.hostile.Crawler, w.hostile.Everything = issue("attack-crawler", "crawler"), issue("attack-everything", "scanner")
	return err
}

// issueToken makes a service account and returns a token of it.
func issueToken(ctx context.Context, admin *client, namespace, name string) (string, error) {
	uri := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	if err := admin.create(ctx, uri, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); err != nil {
		return "", err
	}
	body, err := admin.must(ctx, request{method: http.MethodPost, uri: uri + "/" + name + "/token",
		contentType: "application/json",
		body:        fmt.Sprintf(`{"spec":{"expirationSeconds":%d}}`, int(credentialsLast.Seconds()))})
	var issued struct{ Status struct{ Token string } }
	if err == nil {
		err = json.Unmarshal(body, &issued)
	}
	return issued.Status.Token, err
}

// makeObjects makes all objects, several at a time.
func (w *world) makeObjects(ctx context.Context, objects []*object) error {
	var todo []request
	add := func(tenant, resource, name, labels, more string) {
		todo = append(todo, request{uri: scope{tenant: tenant, resource: resource}.uri(), body: objectBody(tenant, resource, name, labels, more)})
	}
	several := func(n int, tenant, resource, prefix string) {
		for i := range n {
			add(tenant, resource, fmt.Sprint(prefix, i), fmt.Sprintf(`"app":"a%d"`, i%10), "")
		}
	}
	for _, o := range objects {
		tier := map[bool]string{true: "gold", false: "silver"}[o.gold]
		add(o.tenant, o.resource, o.name, fmt.Sprintf(`"tier":%q`, tier), fmt.Sprintf(`,"beat":%q`, o.mark(0)))
	}
	for _, ns := range w.namespaces() {
		add(ns, "configmaps", "large", "", "")
		several(configMapsOfTenant, ns, "configmaps", "cm-")
		several(secretsOfTenant, ns, "secrets", "secret-")
		several(podsOfTenant, ns, "pods", "pod-")
	}
	several(configMapsOfNobody, "bulk", "configmaps", "bulk-")
	errs := make([]error, 12)
	crowd(len(errs), func(i int) {
		c := newClient(w.admin)
		defer c.close()
		for n := i; n < len(todo); n += len(errs) {
			errs[i] = errors.Join(errs[i], c.create(ctx, todo[n].uri, todo[n].body))
		}
	})
	return errors.Join(errs...)
}

// objectBody returns a new object of about 1 KB with its owner's mark.
func objectBody(tenant, resource, name, labels, annotations string) string {
	metadata := fmt.Sprintf(`"metadata":{"name":%q,"labels":{%s},"annotations":{"owner":%q%s}}`, name, labels,
		ownerMark(resource, tenant), annotations)
	switch resource {
	case "secrets":
		return "{" + metadata + `,"stringData":{"key":"value"}}`
	case "pods":
		return "{" + metadata + `,"spec":{"containers":[{"name":"c","image":"none"}]}}`
	}
	return "{" + metadata + fmt.Sprintf(`,"data":{"pad":%q}}`, strings.Repeat("p", 700))
}
