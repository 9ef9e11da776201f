package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

const foosCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"PLURAL.GROUP"},"spec":{
"group":"GROUP","scope":"SCOPE","names":{"plural":"PLURAL","singular":"SINGULAR","kind":"KIND","listKind":"KINDList"},
"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.c"}],
"additionalPrinterColumns":[{"name":"C","type":"string","jsonPath":".spec.c"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
"x-kubernetes-preserve-unknown-fields":true,"properties":{"c":{"type":"string"},"n":{"type":"integer"}}}}}}}]}}`

// createCRD creates a custom resource and waits until kube-apiserver serves it.
func createCRD(t *testing.T, d *target, group, kind, scope string) {
	t.Helper()
	singular := strings.ToLower(kind)
	body := strings.NewReplacer("GROUP", group, "KIND", kind, "SCOPE", scope, "PLURAL", singular+"s", "SINGULAR",
		singular).Replace(foosCRD)
	d.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
	steady.Until(t, "custom resource "+singular, func() error {
		resp, err := d.look("/apis/"+group+"/v1/"+singular+"s?watch=1", nil)
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d", resp.status)
		}
		return err
	})
}

// step is a write straight to kube-apiserver.
type step struct{ method, uri, body string }

func (s step) run(t *testing.T, d *target) uint64 {
	t.Helper()
	contentType := "application/json"
	if s.method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	uri := s.uri
	if s.method == http.MethodDelete {
		uri += "?gracePeriodSeconds=0"
	}
	return d.must(t, s.method, uri, contentType, s.body)
}

// kindCase is a kind with field selectors of its own.
type kindCase struct {
	name      string
	uri       string // of the watched collection
	selectors []string
	none      string // one of them, which no object matches
	steps     []step
	again     []step // instead of the steps, where these can't be done twice
}

func kindCases(ns string) []kindCase {
	in := func(resource string) string { return "/api/v1/namespaces/" + ns + "/" + resource }
	foos := "/apis/kinds.example.com/v1/namespaces/" + ns + "/foos"
	return []kindCase{
		{
			name: "pods", uri: "/api/v1/pods",
			selectors: []string{"", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1", "status.phase=Running",
				"status.phase!=Running", "spec.host=n2",
				"spec.nodeName=n1,status.phase=Pending", "spec.restartPolicy=Never", "spec.hostNetwork=true",
				"status.podIP=10.0.0.1", "status.podIPs=10.0.0.1",
				"status.podIPs!=10.0.0.1", "spec.schedulerName=default-scheduler", "spec.serviceAccountName=",
				"metadata.name=p1", "metadata.namespace=" + ns},
			none: "status.podIPs=10.0.0.1", // kube-apiserver takes it for a field that no pod has
			steps: []step{
				{"POST", in("pods"), podBody("p1", "")},
				{"POST", in("pods"), podBody("p2", "n2")},
				{"POST", in("pods"),
					`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p3"},"spec":{"hostNetwork":true,` +
						`"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`},
				{"POST", in("pods/p1/binding"),
					`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p1"},"target":{"apiVersion":"v1",` +
						`"kind":"Node","name":"n1"}}`},
				{"PATCH", in("pods/p1/status"),
					`{"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"}],"podIP":"10.0.0.1"}}`},
				{"PATCH", in("pods/p1"), `{"metadata":{"labels":{"x":"y"}}}`},
				{"PATCH", in("pods/p2/status"), `{"status":{"phase":"Running"}}`},
				{"PATCH", in("pods/p2/status"), `{"status":{"phase":"Failed"}}`},
				{"DELETE", in("pods/p1"), ""},
				{"DELETE", in("pods/p2"), ""},
				{"DELETE", in("pods/p3"), ""},
			},
		},
		{
			name: "secrets", uri: "/api/v1/secrets",
			selectors: []string{"", "type=Opaque", "type!=Opaque", "type=kubernetes.io/basic-auth"},
			steps: []step{
				{"POST", in("secrets"),
					`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s1"},"stringData":{"k":"v"}}`},
				{"POST", in("secrets"),
					`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s2"},"type":"kubernetes.io/basic-auth",` +
						`"stringData":{"username":"u","password":"p"}}`},
				{"PATCH", in("secrets/s1"), `{"stringData":{"k":"w"}}`},
				{"DELETE", in("secrets/s2"), ""},
				{"DELETE", in("secrets/s1"), ""},
			},
		},
		{
			name: "services", uri: "/api/v1/services",
			selectors: []string{"", "spec.type=ClusterIP", "spec.type=NodePort",
				"spec.clusterIP=None", "spec.clusterIP!=None"},
			steps: []step{
				{"POST", in("services"),
					`{"apiVersion":"v1","kind":"Service","metadata":{"name":"v1"},"spec":{"ports":[{"port":80}]}}`},
				{"POST", in("services"),
					`{"apiVersion":"v1","kind":"Service","metadata":{"name":"v2"},"spec":{"clusterIP":"None",` +
						`"ports":[{"port":80}]}}`},
				{"PATCH", in("services/v1"), `{"spec":{"type":"NodePort"}}`},
				{"DELETE", in("services/v1"), ""},
				{"DELETE", in("services/v2"), ""},
			},
		},
		{
			name: "events", uri: "/api/v1/events",
			selectors: []string{"", "involvedObject.name=o1", "involvedObject.kind=Pod,involvedObject.name=o2",
				"reason=R2", "type=Warning", "source=kubelet", "reportingComponent=kubelet"},
			steps: []step{
				{"POST", in("events"),
					fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e1"},`+
						`"involvedObject":{"kind":"Pod","name":"o1","namespace":%q},"reason":"R1","type":"Normal",`+
						`"source":{"component":"kubelet"}}`, ns)},
				{"POST", in("events"),
					fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e2"},`+
						`"involvedObject":{"kind":"Pod","name":"o2","namespace":%q},"reason":"R2","type":"Warning",`+
						`"reportingComponent":"kubelet"}`, ns)},
				{"PATCH", in("events/e1"), `{"count":2,"type":"Warning"}`},
				{"DELETE", in("events/e1"), ""},
				{"DELETE", in("events/e2"), ""},
			},
		},
		{
			name: "foos", uri: "/apis/kinds.example.com/v1/foos",
			selectors: []string{"", "spec.c=red", "spec.c!=red", "metadata.name=f1", "metadata.namespace=" + ns},
			steps: []step{
				{"POST", foos,
					`{"apiVersion":"kinds.example.com/v1","kind":"Foo","metadata":{"name":"f1"},` +
						`"spec":{"c":"red","n":9007199254740993,"z":"<&>","e":{}}}`},
				{"PATCH", foos + "/f1", `{"spec":{"c":"blue"}}`},
				{"PATCH", foos + "/f1", `{"spec":{"c":"red"}}`},
				{"POST", foos,
					`{"apiVersion":"kinds.example.com/v1","kind":"Foo","metadata":{"name":"f2","labels":{"a":"b"}}}`},
				{"DELETE", foos + "/f1", ""},
				{"DELETE", foos + "/f2", ""},
			},
		},
		{
			name: "namespaces", uri: "/api/v1/namespaces",
			selectors: []string{"", "status.phase=Active", "status.phase=Terminating", "metadata.name=kinds-made"},
			steps: []step{
				{"POST", "/api/v1/namespaces",
					`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kinds-made"}}`},
				{"PATCH", "/api/v1/namespaces/kinds-made", `{"metadata":{"labels":{"x":"y"}}}`},
				{"DELETE", "/api/v1/namespaces/kinds-made", ""},
			},
			again: []step{
				{"PATCH", "/api/v1/namespaces/kinds-made", `{"metadata":{"labels":{"x":"z"}}}`},
				{"POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kinds-again"}}`},
			},
		},
		{
			name: "nodes", uri: "/api/v1/nodes",
			selectors: []string{"", "spec.unschedulable=true", "spec.unschedulable=false", "metadata.name=kinds-node"},
			steps: []step{
				{"POST", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"kinds-node"}}`},
				{"PATCH", "/api/v1/nodes/kinds-node", `{"spec":{"unschedulable":true}}`},
				{"PATCH", "/api/v1/nodes/kinds-node", `{"spec":{"unschedulable":null}}`},
				{"DELETE", "/api/v1/nodes/kinds-node", ""},
			},
		},
		{
			name: "clusterroles", uri: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
			selectors: []string{"", "metadata.name=kinds-role", "metadata.namespace=x"},
			none:      "metadata.namespace=x",
			steps: []step{
				{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
					`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",` +
						`"metadata":{"name":"kinds-role"},"rules":[{"apiGroups":[""],"resources":["pods"],` +
						`"verbs":["get"]}]}`},
				{"PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/kinds-role", `{"rules":[]}`},
				{"DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/kinds-role", ""},
			},
		},
	}
}

// TestKinds: each kind's field selectors map events as kube-apiserver does: "ADDED: new version
// (also when the object existed but did not match before) … DELETED: previous version
// (labels/fields that still match, old data), RV of the modification" (contract.md 3.2). This holds
// live, and from history for a client that comes later with the same resourceVersion. Everything is done
// twice. The first event of the second time ends a watch.
func TestKinds(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	// With the proxy's own rights, Secrets are passed through.
	ours, theirs := p.secure(t, c.token(t, "admin")), c.direct(t)
	createNamespaces(t, theirs, "kinds")
	p.waitReady(t)
	createCRD(t, theirs, "kinds.example.com", "Foo", "Namespaced") // after watchfan has started
	for _, k := range kindCases("kinds") {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rv := theirs.version(t, k.uri)
			var pairs [][2]*recording
			uri := func(selector string) string {
				return fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d&fieldSelector=%s", k.uri, rv,
					url.QueryEscape(selector))
			}
			for _, s := range k.selectors {
				pairs = append(pairs, [2]*recording{ours.watch(t, uri(s)), theirs.follow(t, uri(s))})
			}
			for _, s := range k.steps {
				s.run(t, theirs)
			}
			first := theirs.version(t, k.uri) // before the second time
			again := k.steps
			if k.again != nil {
				again = k.again
			}
			for _, s := range again {
				s.run(t, theirs)
			}
			total := 0
			for i, pair := range pairs {
				late := ours.watch(t, uri(k.selectors[i]))
				if k.none != "" && k.selectors[i] == k.none {
					if got := only(append(pair[0].all(), late.all()...), "kinds"); len(got) > 0 {
						t.Errorf("%s brought %s", pair[0].uri, format(got))
					}
					continue
				}
				own := func(events []event) bool {
					own := only(events, "kinds")
					return len(own) > 0 && own[len(own)-1].rv > first
				}
				pair[1].await(t, "event of the second time", own)
				want := only(pair[1].all(), "kinds")
				marker := want[slices.IndexFunc(want, func(e event) bool { return e.rv > first })].rv
				want = only(pair[1].until(t, marker), "kinds")
				for _, r := range []*recording{pair[0], late} {
					got := r.until(t, marker)
					if err := checkOrder(got, 0); err != nil {
						t.Errorf("%s: %v", r.uri, err)
					}
					if err := compare(only(got, "kinds"), want); err != nil {
						t.Errorf("%s: %v", r.uri, err)
					}
					total += len(got)
				}
				if i == 0 && len(want) < len(k.steps) {
					t.Errorf("kube-apiserver sent %d events for %d writes", len(want), len(k.steps))
				}
			}
			t.Logf("%d events", total)
		})
	}
}

// only drops bookmarks, and events of other tests' objects.
func only(events []event, marker string) []event {
	var mine []event
	for _, e := range withoutBookmarks(events) {
		if strings.HasPrefix(e.key, marker) {
			mine = append(mine, e)
		}
	}
	return mine
}
