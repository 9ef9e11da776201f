package deploytest

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/action"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// valueSets calls f for each file of values in testdata.
func valueSets(t *testing.T, f func(t *testing.T, text string)) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no values in testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { f(t, readFile(t, file)) })
	}
}

// TestLint: helm lint --strict reports nothing.
func TestLint(t *testing.T) {
	valueSets(t, func(t *testing.T, text string) {
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, namespace
		result := lint.Run([]string{chartDir}, values(t, text))
		for _, err := range result.Errors {
			t.Error(err)
		}
		if result.TotalChartsLinted != 1 {
			t.Errorf("linted %d charts", result.TotalChartsLinted)
		}
	})
}

// TestRender: kube-apiserver accepts every object and knows all of its fields.
func TestRender(t *testing.T) {
	c := theCluster(t)
	valueSets(t, func(t *testing.T, text string) {
		r, err := template(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Info.Notes, "https://watchfan.watchfan.svc:") {
			t.Errorf("NOTES.txt says nothing of the address:\n%s", r.Info.Notes)
		}
		var known []*unstructured.Unstructured
		for _, o := range parse(t, r.Manifest) {
			switch o.GetKind() {
			case "ServiceMonitor":
				strictly(t, o, &monitoringv1.ServiceMonitor{})
			case "PrometheusRule":
				strictly(t, o, &monitoringv1.PrometheusRule{})
			default:
				known = append(known, o)
			}
		}
		c.dryRun(t, known)
	})
}

// strictly decodes o into its type. A field that the type does not have is an error.
func strictly(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	content, err := yaml.Marshal(o.Object)
	if err == nil {
		err = yaml.UnmarshalStrict(content, into)
	}
	if err != nil {
		t.Errorf("%s: %v", o.GetKind(), err)
	}
}

// TestObjects: each switch adds its objects and no others.
func TestObjects(t *testing.T) {
	f := func(values, want string) {
		t.Helper()
		var kinds []string
		for _, o := range render(t, values) {
			kinds = append(kinds, o.GetKind())
		}
		if got := strings.Join(slices.Sorted(slices.Values(kinds)), " "); got != want {
			t.Errorf("%q: got %s, want %s", values, got, want)
		}
	}
	f("", "ClusterRole ClusterRole ClusterRoleBinding ClusterRoleBinding ConfigMap Deployment PodDisruptionBudget PodDisruptionBudget Role RoleBinding "+
		"Secret Service Service ServiceAccount ServiceAccount StatefulSet")
	const alone = "ClusterRole ClusterRoleBinding ConfigMap Deployment PodDisruptionBudget Secret Service ServiceAccount"
	f("{replicas: 1, fallback: {replicas: 0}}", alone)
	f("{seeds: {enabled: false}, fallback: {replicas: 0}}", alone)
	f(readFile(t, "testdata/small.yaml"), "ConfigMap Deployment Service")
	const keeper = "ClusterRole ClusterRole ClusterRoleBinding ClusterRoleBinding ConfigMap Deployment Deployment "
	const rest = "PodDisruptionBudget Role RoleBinding Secret Service Service ServiceAccount ServiceAccount " +
		"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
	f("{enrol: {enabled: true}, fallback: {replicas: 0}}",
		keeper+"MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBinding "+rest)
	f("{enrol: {enabled: true, policy: false}, fallback: {replicas: 0}}", keeper+rest)
	f(readFile(t, "testdata/everything.yaml"),
		"ClusterRole ClusterRole ClusterRole ClusterRoleBinding ClusterRoleBinding ClusterRoleBinding "+
			"ConfigMap ConfigMap ConfigMap ConfigMap ConfigMap Deployment "+
			"HorizontalPodAutoscaler NetworkPolicy NetworkPolicy PodDisruptionBudget PodDisruptionBudget PrometheusRule Role RoleBinding "+
			"Secret Service Service Service Service ServiceAccount ServiceAccount ServiceMonitor StatefulSet")
}

// TestLeastRights: the role may list and watch, and that of fall-back replicas create and patch their own
// EndpointSlices. There are more rights only if values ask for them, and no right to read secrets by default.
// From 1.36 on nothing gives the verb impersonate, unless it is asked for.
func TestLeastRights(t *testing.T) {
	f := func(version, more, want string) {
		t.Helper()
		r, err := templateFor(t, version, more)
		if err != nil {
			t.Fatal(err)
		}
		verbs := make(map[string]bool)
		for right := range rights(parse(t, r.Manifest)) {
			verb, resource, _ := strings.Cut(right, " ")
			if resource == "secrets." && !strings.HasPrefix(verb, "impersonate-on:") {
				t.Errorf("%s: %q: secrets are readable", version, more)
			}
			if mode, ok := strings.CutPrefix(verb, "impersonate-on:"); ok {
				verb = "on:" + strings.Split(mode, ":")[0]
			} else if strings.HasPrefix(verb, "impersonate") {
				verb += " " + strings.Split(resource, ".")[0]
			}
			verbs[verb] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(verbs)), ", "); got != want {
			t.Errorf("%s: %q: got %s, want %s", version, more, got, want)
		}
	}
	const alone = "{fallback: {replicas: 0}"
	as := func(impersonate string) string {
		return alone + ", clientCertificates: {enabled: true, configMap: ca, impersonate: " + impersonate + "}}"
	}
	const before, from = "v1.35.9", "v1.36.0-rc.1"
	for _, version := range []string{before, from} {
		f(version, "", "create, get, list, patch, watch")
		f(version, alone+"}", "get, list, watch")
		f(version, as("{}"), "create, get, list, watch")
		f(version, alone+", frontProxies: {enabled: true, configMap: ca, extraKeys: [scopes]}}", "create, get, list, watch")
	}
	const old = "create, get, impersonate groups, impersonate uids, impersonate userextras/authentication, " +
		"impersonate users, list, watch"
	const users = "create, get, impersonate:user-info groups, impersonate:user-info uids, " +
		"impersonate:user-info userextras/authentication, impersonate:user-info users, list, on:user-info, watch"
	const nodes = "create, get, impersonate:arbitrary-node nodes, list, on:arbitrary-node, watch"
	for _, impersonate := range []string{`{nodes: ["*"]}`, "{nodes: [n1]}", `{users: ["system:node:n1"]}`} {
		f(before, as(impersonate), old)
		f(from, as(impersonate), nodes)
	}
	f(before, as("{users: [jane]}"), old)
	f(from, as("{users: [jane]}"), users)
	f(from, as("{users: [jane], nodes: [n1], unconstrained: true}"), old)
	f(from, as(`{users: ["*"], groups: ["system:nodes", "system:authenticated"]}`), strings.ReplaceAll(
		strings.ReplaceAll(users, "get, ", "get, impersonate:arbitrary-node nodes, "), "list, ", "list, on:arbitrary-node, "))
	_, err := template(t, "{frontProxies: {enabled: true, configMap: ca, extraKeys: [scopes]}, "+
		"clientCertificates: {impersonate: {users: [jane]}}}")
	if err == nil || !strings.Contains(err.Error(), "as scopes: name it example.com/KEY") {
		t.Errorf("a key without a domain: %v", err)
	}
}

// TestOwnPaths: the roles allow the paths without a resource that watchfan asks for in its own name, in a cluster
// without system:discovery too.
func TestOwnPaths(t *testing.T) {
	for name, role := range map[string]map[string]bool{
		"chart": rights(render(t, "")), "sidecar": rights(parse(t, readFile(t, "../sidecar/rbac.yaml"))),
	} {
		for _, path := range []string{"/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/openapi/v3", "/readyz", "/version"} {
			allowed := role["get "+path]
			for right := range role {
				prefix, all := strings.CutSuffix(right, "*")
				allowed = allowed || all && strings.HasPrefix("get "+path, prefix)
			}
			if !allowed {
				t.Errorf("%s: %s may not be read", name, path)
			}
		}
	}
}

// TestFallbackReadsNamespaces: a fall-back replica may follow namespaces if a rule of clients asks what views they
// name, and otherwise reads nothing in its own name.
func TestFallbackReadsNamespaces(t *testing.T) {
	for text, want := range map[string]bool{"": false, "clients: [{mode: serve}, {viewOf: namespace}]": true} {
		all := slices.DeleteFunc(render(t, text), func(o *unstructured.Unstructured) bool {
			return o.GetKind() != "ClusterRole" || !strings.HasSuffix(o.GetName(), "-fallback")
		})
		if may := rights(all); len(all) != 1 || may["list namespaces."] != want || may["watch namespaces."] != want {
			t.Errorf("%q: %d roles may %v", text, len(all), may)
		}
	}
}

// TestLongNames: with the longest name of a release, Kubernetes accepts the objects and creates their pods.
func TestLongNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("r", 53), "watchfan" + strings.Repeat("r", 45)} {
		r, err := templateAs(t, name, "v1.37.2", readFile(t, "testdata/everything.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range parse(t, r.Manifest) {
			most := map[string]int{
				"Service":     63,                      // a DNS label
				"StatefulSet": 63 - len("-xxxxxxxxxx"), // a label of its pods has its name and a hash
			}[o.GetKind()]
			if n := len(o.GetName()); most > 0 && n > most {
				t.Errorf("%s %s has %d characters, more than %d", o.GetKind(), o.GetName(), n, most)
			}
			if o.GetKind() != "StatefulSet" {
				continue
			}
			rules := regexp.MustCompile(`pod=~"([^"]+)"`).FindStringSubmatch(r.Manifest)
			if pod := o.GetName() + "-0"; rules == nil || !regexp.MustCompile("^(?:"+rules[1]+")$").MatchString(pod) {
				t.Errorf("the alerts do not select pod %s: %q", pod, rules)
			}
		}
	}
}

// TestText: values are written as Kubernetes and Go parse them.
func TestText(t *testing.T) {
	f := func(version, text string, want ...string) {
		t.Helper()
		r, err := templateFor(t, version, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			has := strings.Contains(r.Manifest, strings.TrimPrefix(w, "!"))
			if has == strings.HasPrefix(w, "!") {
				t.Errorf("Kubernetes %s, %q: want %q in\n%s", version, text, w, r.Manifest)
			}
		}
	}
	f("v1.37.2", "", "trafficDistribution: PreferSameZone", "terminationGracePeriodSeconds: 45",
		"resource: requests.memory", "--history-frames=102400\n")
	f("v1.33.9", "", "trafficDistribution: PreferClose")
	f("v1.37.2", "service: {trafficDistribution: ''}", "!trafficDistribution")
	f("v1.37.2", "cache: {historyEvents: 20000000}", "--history-frames=20000000\n") // not 2e+07
	f("v1.37.2", "limits: {maxConnections: 20000000, maxWatches: 30000000, maxWatchesPerUser: 50}",
		"--max-connections=20000000\n", "--max-watches=30000000\n", "--max-watches-per-user=50\n")
	f("v1.37.2", "", "--seed-from=watchfan-replicas.watchfan.svc\n", "--seed-tls-server-name=watchfan.watchfan.svc\n", "clusterIP: None")
	f("v1.37.2", "replicas: 1", "!seed", "!kube-system", "!clusterIP: None")
	f("v1.37.2", "{replicas: 1, autoscaling: {enabled: true}}", "--seed-from=")
	f("v1.37.2", "goMemoryLimit: 3GiB", "name: GOMEMLIMIT\n              value: \"3GiB\"")
	f("v1.37.2", "{goMemoryLimit: '', fallback: {replicas: 0}}", "!GOMEMLIMIT", "!env:")
	f("v1.37.2", "resources: {requests: {memory: null}, limits: {memory: null}}", "!GOMEMLIMIT")
	f("v1.37.2", "frontProxies: {extraKeys: [a]}", "!requestheader", "!userextras", "--anonymous-auth=true\n")
	f("v1.37.2", "{frontProxies: {enabled: true, configMap: ca, extraKeys: [ex.com/a]}, "+
		"clientCertificates: {impersonate: {users: [u]}}}", `credential-id","userextras/ex.com/a"]`,
		"name: ca\n")
	f("v1.37.2", "{shutdown: {delaySeconds: 0, drainSeconds: 30, timeoutSeconds: 60}, maxConnectionAge: 0s}",
		"--shutdown-delay-duration=0s", "--drain-duration=30s", "--shutdown-timeout=60s",
		"terminationGracePeriodSeconds: 95", "--max-connection-age=0s")
}

// TestArgs: watchfan accepts the arguments of the manifests, and its options have the values of the
// chart.
func TestArgs(t *testing.T) {
	config := func(objects []*unstructured.Unstructured) string {
		t.Helper()
		all, file := "", filepath.Join(t.TempDir(), "config.yaml")
		pods := strings.NewReplacer("/etc/watchfan/config/config.yaml", file, "$(POD_IPS)", "10.0.0.7,fd00::7") // what a pod has
		for _, o := range objects {
			if content, ok, _ := unstructured.NestedString(o.Object, "data", "config.yaml"); ok {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			spec, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			if !found {
				spec, _, _ = unstructured.NestedMap(o.Object, "spec")
			}
			for _, c := range containers(spec) {
				args, _, _ := unstructured.NestedStringSlice(c, "args")
				if len(args) < 8 {
					continue // kube-apiserver
				}
				for i, arg := range args {
					args[i] = pods.Replace(arg)
				}
				got, err := exec.Command(binary(t, "watchfan"), append([]string{"config"}, args...)...).CombinedOutput()
				if err != nil {
					t.Errorf("watchfan %s: %v\n%s", strings.Join(args, " "), err, got)
				}
				all += string(got)
			}
		}
		if all == "" {
			t.Fatal("got no arguments")
		}
		return all
	}
	for _, name := range []string{"static-pod.yaml", "daemonset.yaml", "patches/kube-apiserver+strategic.yaml"} {
		config(parse(t, readFile(t, "../sidecar/"+name)))
	}
	f := func(text string, want ...string) {
		t.Helper()
		got := config(render(t, text))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q: want %q in\n%s", text, w, got)
			}
		}
	}
	f("", "insecurePort: 0\n", "anonymousAuth: true\n", `requestHeaderClientCAFile: ""`, "idleTimeout: 10m\n", "selfCheckInterval: 5m\n",
		"fallbackFor: watchfan/watchfan\n", "fallbackWatchRate: 200\n", "fallbackAddresses:\n  - 10.0.0.7\n  - fd00::7\n",
		"historyBytes: 64Mi\n", "maxConnections: 100000\n", "maxWatches: 0\n", "maxWatchesPerUser: 20000\n",
		`memoryLimit: "-1"`)
	f("limits: {maxConnections: 9, maxWatches: 8, maxWatchesPerUser: 7}", "maxConnections: 9\n", "maxWatches: 8\n",
		"maxWatchesPerUser: 7\n")
	f(readFile(t, "testdata/small.yaml"))
	f(readFile(t, "testdata/everything.yaml"), "anonymousAuth: false\n",
		"clientCAFile: /etc/watchfan/client-ca/client-ca-file\n",
		"requestHeaderClientCAFile: /etc/watchfan/front-proxy-ca/requestheader-client-ca-file\n",
		"requestHeaderAllowedNames:\n  - front-proxy-client\n  - other\n",
		"requestHeaderUsernameHeaders:\n  - X-Remote-User\n",
		"requestHeaderUIDHeaders:\n  - X-Remote-Uid\n", "requestHeaderGroupHeaders:\n  - X-Remote-Group\n",
		"requestHeaderExtraHeadersPrefix:\n  - X-Remote-Extra-\n",
		"minRequestTimeout: 10m\n", "selfCheckInterval: 1m30s\n", "logLevel: debug\n",
		"exclude:\n  - '*.cilium.io'\n  - leases.coordination.k8s.io\n",
		"views:\n  - name: agents\n    drop:\n      - fields:\n          - metadata.managedFields\n", "labelSelector: a in (b, c)\n",
		"clients:\n  - namespaces:\n      - team-a\n    percent: 10\n    mode: observe\n  - userAgents:\n      - kubectl/\n    mode: \"off\"\n",
		"cacheAggregatedGroups:\n  - wardle.example.com/v1\n", "auditLogPath: '-'\n", "auditLogMode: blocking\n")
}

// containers returns those of a pod's spec.
func containers(spec map[string]any) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(spec, "containers")
	for _, c := range list {
		all = append(all, c.(map[string]any))
	}
	return all
}

// TestBadValues: a value that cannot work is refused, and the error names it.
func TestBadValues(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := template(t, text)
		if err == nil {
			t.Errorf("%s: no error", text)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", text, err, w)
			}
		}
	}
	f("replicas: many", "/replicas", "want integer")
	f("cache: {idleTimeout: 10 minutes}", "/cache/idleTimeout", "does not match pattern")
	f("cache: {resident: [Pods]}", "/cache/resident/0", "does not match pattern")
	f("cache: {resources: [{resources: [pods]}]}", "/cache/resources/0", "missing property 'group'")
	f("service: {port: 70000}", "/service/port", "maximum")
	f("image: {digest: latest}", "/image/digest", "does not match pattern")
	f("log: {level: verbose}", "/log/level", "debug")
	f("goMemoryLimit: 700Mi", "/goMemoryLimit", "does not match pattern")
	f("extraArgs: [min-request-timeout]", "/extraArgs/0", "does not match pattern")
	f("autoscaling: {enabled: true, cpuPercent: 0}", "give autoscaling.cpuPercent")
	f("autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}", "minReplicas is 5, more than maxReplicas, 2")
	f("{enrol: {enabled: true}, service: {port: 6443}}", "service.port must be 443")
	f("serviceAccount: {create: false}", "give serviceAccount.name")
	f("clientCertificates: {enabled: true}", "give clientCertificates.configMap")
	f("views: [{name: a, drop: []}]", "/views/0/drop", "minItems")
	f("views: [{name: a, drop: [{keep: [data]}]}]", "/views/0/drop/0", "additional properties")
	f("clients: [{mode: off}]", "/clients/0/mode", "'off', 'observe', 'serve'") // YAML's false
	f("clients: [{mode: observe, percent: 101}]", "/clients/0/percent", "100")
	f("frontProxies: {enabled: true}", "give frontProxies.configMap")
	f("frontProxies: {groupHeaders: ['X-A,X-B']}", "/frontProxies/groupHeaders/0", "does not match pattern")
	f("anonymousAuth: 'no'", "/anonymousAuth", "want boolean")
}

// TestUntestedPolicy: the policy is installed only where its expressions are tested: in the dev
// cluster's versions that have such policies.
func TestUntestedPolicy(t *testing.T) {
	for version, want := range map[string]bool{"v1.35.9": false, "v1.36.0": true, "v1.37.2": true, "v1.38.0-alpha.1": false,
		"v1.38.0": false} {
		_, err := templateFor(t, version, "enrol: {enabled: true}")
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "1.36 and 1.37, and not with "+version) {
			t.Errorf("%s: %v", version, err)
		}
		if _, err := templateFor(t, version, "enrol: {enabled: true, policy: false}"); err != nil {
			t.Errorf("%s without a policy: %v", version, err)
		}
	}
}

// TestSchema: each value of the schema is in values.yaml, which explains it. The other tests show
// that the schema accepts all of values.yaml.
func TestSchema(t *testing.T) {
	defaults := values(t, readFile(t, chartDir+"/values.yaml"))
	var schema struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	decode(t, chartDir+"/values.schema.json", &schema)
	for name, property := range schema.Properties {
		if _, ok := defaults[name]; !ok && name != "global" {
			t.Errorf("%s is in the schema and not in values.yaml", name)
		}
		section, _ := defaults[name].(map[string]any)
		for field := range property.Properties {
			if _, ok := section[field]; !ok && name != "resources" {
				t.Errorf("%s.%s is in the schema and not in values.yaml", name, field)
			}
		}
	}
}
