package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rights are the RBAC objects that the test has made, by "namespace/name"; a cluster's object has
// no namespace. They are immutable: a write makes others.
type rights struct {
	roles    map[string][]rbacv1.PolicyRule
	bindings map[string]binding
	gone     string // a person whose account is deleted; "" is nobody
}

type binding struct {
	role     string // a key of roles
	subjects []rbacv1.Subject
}

// demand is what an authorizer decides on.
type demand struct {
	// No namespace is all of them, no name is all or, for a list or a watch, no single one.
	verb, group, resource, namespace, name string
}

// person is the user that kube-apiserver sees.
type person struct {
	name   string
	groups []string // the last is system:authenticated
}

// allow is the RBAC authorizer, written from its documentation. Rights only add up. A RoleBinding
// grants the rights of a Role or a ClusterRole within its namespace. A rule with resourceNames
// grants nothing to a request without a name.
func (r rights) allow(p person, d demand) bool {
	if r.gone != "" && p.name == r.gone {
		return false
	}
	for key, b := range r.bindings {
		namespace, _, _ := strings.Cut(key, "/")
		if (namespace == "" || namespace == d.namespace) && slices.ContainsFunc(b.subjects, p.is) &&
			slices.ContainsFunc(r.roles[b.role], d.under) {
			return true
		}
	}
	return false
}

func (p person) is(s rbacv1.Subject) bool {
	switch s.Kind {
	case "User":
		return s.Name == p.name
	case "Group":
		return slices.Contains(p.groups, s.Name)
	}
	return p.name == "system:serviceaccount:"+s.Namespace+":"+s.Name
}

func (d demand) under(r rbacv1.PolicyRule) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return has(r.Verbs, d.verb) && has(r.APIGroups, d.group) && has(r.Resources, d.resource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, d.name))
}

// The namespaces and resources that rights are about.
var (
	rbacNamespaces = []string{"r1", "r2", "r3"}
	rbacNames      = []string{"o0", "o1", "o2", "o3"}
	rbacResources  = []demand{{resource: "configmaps"}, {resource: "secrets"},
		{group: "rbac.ex.io", resource: "things"}}
)

// demands returns everything that can be asked for.
func demands() (all []demand) {
	for _, d := range rbacResources {
		for _, ns := range append([]string{""}, rbacNamespaces...) {
			for _, name := range append([]string{""}, rbacNames...) {
				for _, verb := range []string{"get", "list", "watch"} {
					if d.verb, d.namespace, d.name = verb, ns, name; verb != "get" || ns != "" && name != "" {
						all = append(all, d)
					}
				}
			}
		}
	}
	return all
}

// uri returns the request for d.
func (d demand) uri(query string) string {
	path := "/api/v1"
	if d.group != "" {
		path = "/apis/" + d.group + "/v1"
	}
	if d.namespace != "" {
		path += "/namespaces/" + d.namespace
	}
	path += "/" + d.resource
	switch {
	case d.verb == "get":
		path += "/" + d.name
	case d.name != "":
		query += "&fieldSelector=metadata.name%3D" + d.name
	}
	if d.verb == "watch" {
		query += "&watch=1"
	}
	return path + "?" + strings.TrimPrefix(query, "&")
}

// near returns a get or list that differs from d in one thing.
func (d demand) near(rng *rand.Rand) demand {
	switch kind := rng.IntN(4); {
	case d.namespace != "" && d.name != "" && kind == 0:
		d.verb = map[string]string{"get": "list", "list": "get"}[d.verb]
	case d.name != "" && kind < 3:
		d.name = rbacNames[rng.IntN(len(rbacNames))]
	case d.namespace != "":
		d.namespace = rbacNamespaces[rng.IntN(len(rbacNamespaces))]
	default:
		other := rbacResources[rng.IntN(len(rbacResources))]
		d.group, d.resource = other.group, other.resource
	}
	return d
}

// covers reports whether d asks for the object with this key.
func (d demand) covers(key string) bool {
	namespace, name, _ := strings.Cut(key, "/")
	return (d.namespace == "" || namespace == d.namespace) && (d.name == "" || name == d.name)
}

// ledger has the rights of all times. Time is 2i while entry i is in force, and 2i+1 while i+1 may be in force as well:
// kube-apiserver may not have seen a change yet, and watchfan may believe older answers.
type ledger struct {
	mu       sync.Mutex
	entries  []rights
	changing bool
}

// begin adds rights. It returns those before.
func (l *ledger) begin(after rights) (before rights) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changing = len(l.entries) > 0; l.changing {
		before = l.entries[len(l.entries)-1]
	}
	l.entries = append(l.entries, after)
	return before
}

// settle says that only the last rights are in force.
func (l *ledger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changing = false
}

// now returns the time, and the last rights.
func (l *ledger) now() (time int, last rights) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time = 2 * (len(l.entries) - 1); l.changing {
		time--
	}
	return time, l.entries[len(l.entries)-1]
}

// during returns the answers that may have been given between from and to.
func (l *ledger) during(p person, d demand, from, to int) (yes, no bool) {
	for _, r := range l.entries[from/2 : (to+1)/2+1] {
		if r.allow(p, d) {
			yes = true
		} else {
			no = true
		}
	}
	return yes, no
}

// amendment is one write of one RBAC object.
type amendment struct {
	kind, key string
	after     rights
}

// draw returns an amendment to r that changes the answers to some people's demands, and one such
// demand. An amendment that changes no answer could not be noticed.
func (r rights) draw(rng *rand.Rand, people []person, all []demand) (c amendment, who person, what demand) {
	for {
		c = r.drawAny(rng, people)
		for _, p := range rng.Perm(len(people)) {
			for _, d := range rng.Perm(len(all)) {
				if r.allow(people[p], all[d]) != c.after.allow(people[p], all[d]) {
					return c, people[p], all[d]
				}
			}
		}
	}
}

func (r rights) drawAny(rng *rand.Rand, people []person) amendment {
	c := amendment{kind: "RoleBinding", after: rights{roles: maps.Clone(r.roles), bindings: maps.Clone(r.bindings)}}
	kind := rng.IntN(5)
	if kind == 0 {
		c.kind, c.key = "Role", slices.Sorted(maps.Keys(r.roles))[rng.IntN(len(r.roles))]
		c.after.roles[c.key] = drawRules(rng)
		return c
	}
	c.key = slices.Sorted(maps.Keys(r.bindings))[rng.IntN(len(r.bindings))]
	b := r.bindings[c.key]
	switch subjects := slices.Clone(b.subjects); {
	case kind == 1 && len(subjects) > 0: // all of it is taken back, and granted again later
		b.subjects = nil
	case kind == 4 && len(subjects) > 1:
		b.subjects = subjects[1:]
	default:
		b.subjects = append(subjects, drawSubject(rng, people))
	}
	c.after.bindings[c.key] = b
	return c
}

// apply writes c. A PUT also creates RBAC's objects.
func (c amendment) apply(t *testing.T, admin *target) {
	t.Helper()
	uri := rbacURI(c.kind, c.key)
	if c.kind == "RoleBinding" && len(c.after.bindings[c.key].subjects) == 0 {
		admin.remove(t, uri)
		return
	}
	admin.must(t, http.MethodPut, uri, jsonType, c.after.body(c.kind, c.key))
}

// create makes all of r's objects.
func (r rights) create(t *testing.T, admin *target) {
	t.Helper()
	for key := range r.roles {
		amendment{"Role", key, r}.apply(t, admin)
	}
	for key := range r.bindings {
		amendment{"RoleBinding", key, r}.apply(t, admin)
	}
}

func drawSubject(rng *rand.Rand, people []person) rbacv1.Subject {
	p := people[rng.IntN(len(people))]
	if own := p.groups[:len(p.groups)-1]; rng.IntN(3) == 0 && len(own) > 0 { // the last is system:authenticated
		return rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: own[rng.IntN(len(own))]}
	}
	if rest, ok := strings.CutPrefix(p.name, "system:serviceaccount:"); ok && rng.IntN(2) == 0 {
		namespace, name, _ := strings.Cut(rest, ":")
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: p.name}
}

func drawRules(rng *rand.Rand) (rules []rbacv1.PolicyRule) {
	some := func(all []string) []string {
		perm := rng.Perm(len(all))[:1+rng.IntN(len(all))]
		picked := make([]string, len(perm))
		for i, p := range perm {
			picked[i] = all[p]
		}
		return picked
	}
	for range 1 + rng.IntN(2) {
		d := rbacResources[rng.IntN(len(rbacResources))]
		r := rbacv1.PolicyRule{APIGroups: []string{d.group}, Resources: []string{d.resource},
			Verbs: some([]string{"get", "list", "watch"})}
		if rng.IntN(3) == 0 {
			r.Verbs = []string{"*"}
		}
		if rng.IntN(2) == 0 {
			r.ResourceNames = some(rbacNames)[:1]
		}
		rules = append(rules, r)
	}
	return rules
}

// firstRights are two roles in each namespace and three of the cluster, with a binding for each.
// All but one of the cluster's roles are bound in a namespace.
func firstRights(rng *rand.Rand, people []person) rights {
	r := rights{roles: make(map[string][]rbacv1.PolicyRule), bindings: make(map[string]binding)}
	for i := range 9 {
		ns := append(rbacNamespaces, "")[i/2%4] // r1 r1 r2 r2 r3 r3 "" "" r1
		in := ns
		if ns == "" && i%2 == 0 {
			in = rbacNamespaces[rng.IntN(len(rbacNamespaces))]
		}
		role := fmt.Sprintf("%s/role-%d", ns, i)
		r.roles[role] = drawRules(rng)
		r.bindings[fmt.Sprintf("%s/binding-%d", in, i)] = binding{role,
			[]rbacv1.Subject{drawSubject(rng, people), drawSubject(rng, people), drawSubject(rng, people)}}
	}
	return r
}

func nameOf(key string) string { return key[strings.IndexByte(key, '/')+1:] }

// rbacURI returns the path of a Role or RoleBinding, or of a ClusterRole or ClusterRoleBinding.
func rbacURI(kind, key string) string {
	uri := "/apis/" + rbacv1.GroupName + "/v1/"
	if namespace, _, _ := strings.Cut(key, "/"); namespace != "" {
		uri += "namespaces/" + namespace + "/"
	}
	return uri + strings.ToLower(rbacKind(kind, key)) + "s/" + nameOf(key)
}

// rbacKind returns the kind of a key's object: the cluster's kind if the key has no namespace.
func rbacKind(kind, key string) string {
	if strings.HasPrefix(key, "/") {
		return "Cluster" + kind
	}
	return kind
}

// body returns one of the objects as it is sent.
func (r rights) body(kind, key string) string {
	object := map[string]any{"apiVersion": rbacv1.GroupName + "/v1", "kind": rbacKind(kind, key),
		"metadata": map[string]string{"name": nameOf(key)}}
	if kind == "Role" {
		object["rules"] = r.roles[key]
	} else {
		b := r.bindings[key]
		object["subjects"] = b.subjects
		object["roleRef"] = map[string]string{"apiGroup": rbacv1.GroupName,
			"kind": rbacKind("Role", b.role), "name": nameOf(b.role)}
	}
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // strings, and slices and maps of them, cannot fail
	}
	return string(body)
}
