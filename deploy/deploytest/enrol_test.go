package deploytest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/watchfan/watchfan/proxy/operate/enrol"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// enrolment is a cluster whose pods have token volumes, with the chart, its keeper and its watchfan.
type enrolment struct {
	*cluster
	fan       *watchfan
	tls       string // folder of the files that the keeper reads
	keeperLog string
}

// newEnrolment installs the chart in a cluster of its own, of both IP families.
func newEnrolment(t *testing.T) *enrolment {
	t.Helper()
	c, err := startCluster(binary(t, "devcluster"), "--service-accounts",
		"--apiserver-arg=service-cluster-ip-range=10.0.0.0/24,fd00:10::/112")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log := readFile(t, filepath.Join(c.Dir, "kube-apiserver.log")); strings.Contains(log, "panic") {
			t.Errorf("kube-apiserver panicked:\n%s", log)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := &enrolment{cluster: c, tls: t.TempDir()}
	c.must(t, paints+`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: enrol-reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]
`) // paints has the account of e.fan's client
	c.install(t, "enrol: {enabled: true}")
	e.fan = c.watchfan(t, c.config.Host, c.Ready.CAFile, "watchfan")
	secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), "watchfan-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "ca.crt"} {
		e.write(t, name, string(secret.Data[name]))
	}
	e.startKeeper(t)
	return e
}

func (e *enrolment) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.tls, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// as returns a client with the token of an account in the release's namespace.
func (e *enrolment) as(t *testing.T, account string) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: e.config.Host, BearerToken: e.token(t, namespace, account),
		TLSClientConfig: rest.TLSClientConfig{CAFile: e.Ready.CAFile}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// startKeeper runs the keeper with the arguments of its Deployment, until the test ends.
func (e *enrolment) startKeeper(t *testing.T) {
	t.Helper()
	d, err := e.client.AppsV1().Deployments(namespace).Get(t.Context(), "watchfan-keeper", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	e.kubeconfig(t, kubeconfig, e.config.Host, e.Ready.CAFile, "watchfan-keeper")
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "/etc/watchfan/tls", e.tls))
	}
	args = append(args, "--kubeconfig", kubeconfig)
	e.keeperLog = filepath.Join(dir, "log")
	p, err := proxytest.StartProcess(exec.Command(binary(t, "watchfan"), args...), e.keeperLog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(syscall.SIGTERM, steady.Patience); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the keeper exited with %d:\n%s", code, readFile(t, e.keeperLog))
		}
	})
}

// label makes a namespace with a value of the label, "" for none.
func (e *enrolment) label(t *testing.T, name, value string) {
	t.Helper()
	labels := ""
	if value != "" {
		labels = fmt.Sprintf(", labels: {%s: %q}", enrol.Label, value)
	}
	e.must(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s%s}}", name, labels))
}

// bundle waits for a namespace's bundle that f accepts.
func (e *enrolment) bundle(t *testing.T, namespace string, f func(data map[string]string) bool) {
	t.Helper()
	steady.Until(t, "bundle of "+namespace, func() error {
		m, err := e.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), enrol.BundleName, metav1.GetOptions{})
		if err == nil && !f(m.Data) {
			err = fmt.Errorf("got %q, %d bytes of certificates; the keeper says\n%s", m.Data[enrol.AddressesKey],
				len(m.Data["ca.crt"]), readFile(t, e.keeperLog))
		}
		return err
	})
}

func complete(data map[string]string) bool {
	return strings.Count(data["ca.crt"], "BEGIN CERTIFICATE") == 2 && data[enrol.AddressesKey] != ""
}

// try creates a pod without effect and returns what kube-apiserver would have stored.
func (e *enrolment) try(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := e.client.CoreV1().Pods(namespace).Create(t.Context(), pod.DeepCopy(),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatalf("%v\n%s", err, cmp.Diff(&corev1.Pod{}, pod))
	}
	return got
}

func enrolled(pod *corev1.Pod) bool { return pod.Labels[enrol.EnrolledLabel] == "true" }

// awaitPolicy waits until pods of a namespace are enrolled, or no longer: kube-apiserver learns of a
// policy, a parameter and a label a little later.
func (e *enrolment) awaitPolicy(t *testing.T, namespace string, want bool) {
	t.Helper()
	steady.Until(t, fmt.Sprintf("pods of %s are enrolled: %v", namespace, want), func() error {
		probe := podOf("probe", nil, corev1.Container{Name: "c", Image: "i"})
		pod, err := e.client.CoreV1().Pods(namespace).Create(t.Context(), probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && enrolled(pod) != want {
			err = errors.New("not yet")
		}
		return err
	})
}

func podOf(name string, labels map[string]string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{Containers: containers}}
}

// TestEnrol: a label makes pods use watchfan.
func TestEnrol(t *testing.T) {
	e := newEnrolment(t)
	e.label(t, "plain", "")
	e.label(t, "shop", "true")
	e.label(t, "some", "pods")
	e.bundle(t, "shop", complete)
	e.bundle(t, "some", complete)
	e.awaitPolicy(t, "shop", true)
	t.Run("Label", e.testLabel)
	t.Run("Shapes", e.testShapes)
	t.Run("LateContainers", e.testLateContainers)
	t.Run("Use", e.testUse)
	t.Run("Charts", e.testCharts)
	t.Run("Commands", e.testCommands)
	t.Run("KeeperRights", e.testKeeperRights)
	t.Run("Renewal", e.testRenewal)
}

// The namespace's label, the pod's own, and what is never enrolled unless it asks.
func (e *enrolment) testLabel(t *testing.T) {
	own := func(value string) map[string]string { return map[string]string{enrol.Label: value} }
	f := func(namespace string, want bool, pod *corev1.Pod) {
		t.Helper()
		if got := enrolled(e.try(t, namespace, pod)); got != want {
			t.Errorf("%s in %s: enrolled %v, want %v", pod.Name, namespace, got, want)
		}
	}
	container := corev1.Container{Name: "c", Image: "i"}
	f("plain", false, podOf("plain", nil, container))
	f("plain", false, podOf("asks", own("true"), container))
	f("some", false, podOf("plain", nil, container))
	f("some", true, podOf("asks", own("true"), container))
	f("some", false, podOf("refuses", own("false"), container))
	f("shop", true, podOf("plain", nil, container))
	f("shop", true, podOf("asks", own("true"), container))
	f("shop", false, podOf("refuses", own("false"), container))
	for _, labels := range []map[string]string{nil, own("true")} {
		network := podOf("host-network", labels, container)
		network.Spec.HostNetwork = true
		f("shop", labels != nil, network)
		critical := podOf("critical", labels, container)
		critical.Spec.PriorityClassName = "system-node-critical"
		f("shop", labels != nil, critical)
		named := map[string]string{"app.kubernetes.io/name": "watchfan"}
		maps.Copy(named, labels)
		f("shop", labels != nil, podOf("watchfan", named, container))
	}
}

// Pods of every shape are created, and enrolment changes nothing in them but what it says.
func (e *enrolment) testShapes(t *testing.T) {
	rng, changed := steady.Rand(t), 0
	for range 150 {
		pod := drawPod(rng)
		plain, got := e.try(t, "plain", pod), e.try(t, "shop", pod)
		want := usesAPI(plain)
		if enrolled(got) != want {
			content, _ := yaml.Marshal(plain.Spec)
			t.Fatalf("enrolled %v, want %v:\n%s", enrolled(got), want, content)
		}
		if want {
			changed++
			undo(t, got)
		}
		if diff := cmp.Diff(comparable(t, plain), comparable(t, got)); diff != "" {
			t.Errorf("enrolment also changes\n%s", diff)
		}
	}
	if changed < 20 {
		t.Errorf("only %d pods were enrolled", changed)
	}
}

// drawPod draws a pod from the shapes that its lists may have.
func drawPod(rng *rand.Rand) *corev1.Pod {
	some := func() bool { return rng.IntN(2) == 0 }
	pick := func(n int) int { return rng.IntN(n) }
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
	}
	volumes := []corev1.Volume{{Name: "empty"}, {Name: "no-sources", VolumeSource: projected()},
		{Name: "own", VolumeSource: projected(
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}},
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("kube-root-ca.crt")}},
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}})}}
	environments := [][]corev1.EnvVar{nil, {}, {{Name: "A", Value: "a"}, {Name: "A", Value: "b"}},
		{{Name: "A", Value: "$(KUBERNETES_SERVICE_HOST)"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		{{Name: "KUBERNETES_SERVICE_HOST", Value: "elsewhere"}}, {{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}}}
	mounts := [][]corev1.VolumeMount{nil, nil, {{Name: "empty", MountPath: accountPath}},
		{{Name: "own", MountPath: "/own"}}, {{Name: "own", MountPath: accountPath}, {Name: "empty", MountPath: "/e"}}}
	containers := func(kind string, n int) (all []corev1.Container) {
		for i := range n {
			c := corev1.Container{Name: fmt.Sprintf("%s%d", kind, i), Image: "i", Env: environments[pick(len(environments))],
				VolumeMounts: mounts[pick(len(mounts))]}
			if some() {
				c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("x")}}}
			}
			if always := corev1.ContainerRestartPolicyAlways; kind == "init" && some() {
				c.RestartPolicy = &always
			}
			all = append(all, c)
		}
		return all
	}
	pod := podOf("drawn", nil, containers("main", 1+pick(4))...)
	pod.Spec.InitContainers = containers("init", pick(3))
	pod.Spec.Volumes = volumes
	if some() {
		pod.Labels = map[string]string{"a": "b"}
	}
	if mount := pick(3) > 0; !mount {
		pod.Spec.AutomountServiceAccountToken = &mount
	}
	pod.Spec.HostNetwork = pick(6) == 0
	switch pick(4) {
	case 0:
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}, {IP: "192.0.2.2"}}
	case 1:
		if pick(3) == 0 {
			pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", enrol.Host}}}
		}
	}
	return pod
}

// usesAPI reports whether a pod should be enrolled, as kube-apiserver stores it without enrolment.
func usesAPI(pod *corev1.Pod) bool {
	if pod.Spec.HostNetwork || slices.ContainsFunc(pod.Spec.HostAliases, func(a corev1.HostAlias) bool {
		return slices.Contains(a.Hostnames, enrol.Host)
	}) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return mountsCA(pod, c) && !ownServer(c)
	})
}

// mountsCA reports whether a container mounts kube-apiserver's CA, or the bundle.
func mountsCA(pod *corev1.Pod, c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "own" || strings.HasPrefix(m.Name, "kube-api-access-")
	})
}

// wanted are the variables of enrolled containers.
var wanted = map[string]string{"KUBERNETES_SERVICE_HOST": enrol.Host, "KUBERNETES_SERVICE_PORT": "443"}

func ownServer(c corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return wanted[v.Name] != "" })
}

// undo takes back what enrolment should have done, and fails if it has not.
func undo(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if delete(pod.Labels, enrol.EnrolledLabel); len(pod.Labels) == 0 {
		pod.Labels = nil
	}
	aliases := len(pod.Spec.HostAliases)
	pod.Spec.HostAliases = slices.DeleteFunc(pod.Spec.HostAliases, func(a corev1.HostAlias) bool {
		return slices.Equal(a.Hostnames, []string{enrol.Host})
	})
	if aliases-len(pod.Spec.HostAliases) < 1 {
		t.Error("the pod has no alias")
	}
	if len(pod.Spec.HostAliases) == 0 {
		pod.Spec.HostAliases = nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for i := range v.Projected.Sources {
			if m := v.Projected.Sources[i].ConfigMap; m != nil && m.Name == enrol.BundleName {
				m.Name = "kube-root-ca.crt"
			} else if m != nil && m.Name == "kube-root-ca.crt" {
				t.Error("a volume has kube-apiserver's CA alone")
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			before := len(c.Env)
			c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return v.Value != "" && v.Value == wanted[v.Name] })
			set := before - len(c.Env)
			if len(c.Env) == 0 {
				c.Env = nil
			}
			if want := mountsCA(pod, *c) && !ownServer(*c); want && set != 2 || !want && set != 0 {
				t.Errorf("container %s: %d variables are set, want %v", c.Name, set, want)
			}
		}
	}
}

// comparable returns a pod without what differs between two creations.
func comparable(t *testing.T, pod *corev1.Pod) map[string]any {
	t.Helper()
	pod = pod.DeepCopy()
	rename := func(name *string) {
		if strings.HasPrefix(*name, "kube-api-access-") {
			*name = "kube-api-access"
		}
	}
	for i := range pod.Spec.Volumes {
		rename(&pod.Spec.Volumes[i].Name)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for i := range c.VolumeMounts {
			rename(&c.VolumeMounts[i].Name)
		}
	}
	pod.ObjectMeta = metav1.ObjectMeta{Labels: pod.Labels}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A container that a webhook adds is enrolled too, and the pod's fields are not doubled. An ephemeral
// container may be added to an enrolled pod.
func (e *enrolment) testLateContainers(t *testing.T) {
	injector := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind,
			Patch: []byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"i"}}]`)}
		writeJSON(t, w, review)
	}))
	defer injector.Close()
	e.label(t, "mesh", "true")
	e.bundle(t, "mesh", complete)
	e.awaitPolicy(t, "mesh", true)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: injector.Certificate().Raw})
	e.must(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: injector}
webhooks:
  - name: injector.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {url: %q, caBundle: %s}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: mesh}}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`, injector.URL, base64.StdEncoding.EncodeToString(ca)))
	defer func() {
		webhooks := e.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		if err := webhooks.Delete(context.Background(), "injector", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	var pod *corev1.Pod
	steady.Until(t, "injected container", func() error {
		pod = e.try(t, "mesh", podOf("injected", nil, corev1.Container{Name: "c", Image: "i"}))
		if len(pod.Spec.Containers) != 2 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := len(pod.Spec.HostAliases); n != 1 || !ownMount(pod.Spec.Containers[1]) {
		t.Errorf("the pod has %d aliases, and its sidecar mounts %v", n, pod.Spec.Containers[1].VolumeMounts)
	}
	undo(t, pod) // checks the containers

	pod = e.create(t, "shop", podOf("debugged", nil, corev1.Container{Name: "c", Image: "i"}))
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "i",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}
	_, err := e.client.CoreV1().Pods("shop").UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	if err != nil {
		t.Error(err)
	}
}

// ownMount reports whether a container mounts something for its account.
func ownMount(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountPath })
}

func writeJSON(t *testing.T, w http.ResponseWriter, v any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

// create creates a pod, its account, and the account's right to read ConfigMaps of the namespace.
func (e *enrolment) create(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	} else {
		e.must(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}",
			account, namespace))
	}
	e.must(t, fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, "+
		"metadata: {name: %s, namespace: %s}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: enrol-reader}, "+
		"subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]}", account, namespace))
	var created *corev1.Pod
	steady.Until(t, "pod "+pod.Name, func() (err error) {
		created, err = e.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	return created
}

// network has the tier's and kube-apiserver's Services.
func (e *enrolment) network(t *testing.T) (net *services, tier, server *proxytest.Relay) {
	t.Helper()
	s, err := e.client.CoreV1().Services(namespace).Get(t.Context(), "watchfan", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	net = &services{}
	return net, net.bind(t, e.fan.secure, s.Spec.ClusterIPs...), net.bind(t, e.Address(), "10.0.0.1")
}

// What programs of an enrolled pod use: the tier, in client-go, Python and Node. A container with its
// own variables uses kube-apiserver. When kube-apiserver answers at the tier's address, nothing changes.
func (e *enrolment) testUse(t *testing.T) {
	net, tier, server := e.network(t)
	e.must(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: shop}}")
	own := []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"}}
	pod := e.create(t, "shop", podOf("used", nil, corev1.Container{Name: "c", Image: "i"},
		corev1.Container{Name: "own", Image: "i", Env: own}))
	run := func(container string, want *proxytest.Relay, command ...string) {
		t.Helper()
		before := [2]int64{tier.Opened.Load(), server.Opened.Load()}
		out, err := net.run(t, e.cluster, pod, container, command...)
		if err != nil || !strings.Contains(out, "ConfigMaps\n") {
			t.Fatalf("%v: %s", err, out)
		}
		used := [2]bool{tier.Opened.Load() > before[0], server.Opened.Load() > before[1]}
		if used != [2]bool{want == tier, want == server} {
			t.Errorf("the tier and kube-apiserver were used: %v\n%s", used, out)
		}
	}
	script := func(name string) string {
		path, err := filepath.Abs(filepath.Join("testdata/enrol", name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	clients := [][]string{client("shop", "hello")}
	if _, err := os.Stat("/usr/lib/python3/dist-packages/kubernetes"); err == nil || os.Getenv("CI") == "true" {
		clients = append(clients, []string{"/usr/bin/python3", script("in_cluster.py"), "shop", "hello"})
	}
	clients = append(clients, []string{"node", script("in_cluster.mjs"),
		proxytest.Binary(t, "NODE_CLIENTS", "node-clients", "deploytest"), "shop", "hello"})
	run("own", server, clients[0]...)
	for _, c := range clients {
		run("c", tier, c...)
	}
	address := e.Address()
	tier.Redirect(address)
	for _, c := range clients {
		run("c", tier, c...)
	}
}

// Each chart's pods use the tier, with no change but the label.
func (e *enrolment) testCharts(t *testing.T) {
	net, tier, server := e.network(t)
	e.must(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: shop}}")
	pods := parse(t, readFile(t, "testdata/enrol/charts.yaml"))
	if len(pods) < 10 {
		t.Fatalf("%d pods", len(pods))
	}
	for _, o := range pods {
		pod := &corev1.Pod{}
		strictly(t, o, pod)
		t.Run(pod.Name, func(t *testing.T) {
			pod := e.create(t, "shop", pod)
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				before := [2]int64{tier.Opened.Load(), server.Opened.Load()}
				out, err := net.run(t, e.cluster, pod, c.Name, client("shop", "hello")...)
				if err != nil || tier.Opened.Load() == before[0] || server.Opened.Load() != before[1] {
					t.Errorf("container %s does not use the tier: %v\n%s", c.Name, err, out)
				}
			}
		})
	}
}

// kubectl watchfan enrols a workload of a namespace without the label, by its label or by all that the
// policy would change, and takes back every field. Nothing of a dry run stays.
func (e *enrolment) testCommands(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "kubectl-watchfan")
	if err := os.Symlink(binary(t, "watchfan"), plugin); err != nil {
		t.Fatal(err)
	}
	run := func(want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), plugin, append(args, "--kubeconfig", e.Ready.Kubeconfigs["admin"])...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl watchfan %s: %v\n%s\nwant %s", strings.Join(args, " "), err, out, want)
		}
	}
	e.label(t, "stall", "")
	e.must(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: stall}}")
	e.must(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: stall}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      hostAliases: [{ip: 192.0.2.1, hostnames: [a]}]
      initContainers: [{name: i, image: i}]
      containers: [{name: c, image: i, env: [{name: A, value: a}], volumeMounts: [{name: e, mountPath: /e}]}]
      volumes: [{name: e, emptyDir: {}}]
`)
	template := func() corev1.PodTemplateSpec {
		t.Helper()
		d, err := e.client.AppsV1().Deployments("stall").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template
	}
	before := template()
	run("enrol: \"true\"", "enrol", "deployment/web", "-n", "stall", "--dry-run=server", "-o", "yaml")
	if diff := cmp.Diff(before, template()); diff != "" {
		t.Errorf("after a dry run:\n%s", diff)
	}
	net, tier, _ := e.network(t)
	for i, flags := range [][]string{{}, {"--template"}} {
		run("deployment/web enrolled\n", append([]string{"enrol", "deploy/web", "-n", "stall"}, flags...)...)
		now := template()
		pod := &corev1.Pod{ObjectMeta: now.ObjectMeta, Spec: now.Spec}
		pod.Name = fmt.Sprint("web-", i)
		if written := len(pod.Spec.Volumes) > 1; written != (i == 1) {
			t.Errorf("enrol %v writes %v", flags, pod.Spec)
		}
		if i == 0 {
			steady.Until(t, "an enrolled pod", func() error {
				if !enrolled(e.try(t, "stall", pod)) {
					return errors.New("not yet")
				}
				return nil
			})
		}
		pod = e.create(t, "stall", pod)
		used := tier.Opened.Load()
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			out, err := net.run(t, e.cluster, pod, c.Name, client("stall", "hello")...)
			if err != nil || tier.Opened.Load() == used {
				t.Errorf("container %s does not use the tier: %v\n%s", c.Name, err, out)
			}
		}
		run("pod/"+pod.Name, "enrolled", "-n", "stall")
		run("deployment/web left\n", "leave", "deployment/web", "-n", "stall")
		if diff := cmp.Diff(before, template()); diff != "" {
			t.Errorf("enrol %v and leave change the template:\n%s", flags, diff)
		}
	}
	run("namespace/stall enrolled\n", "enrol", "stall")
	e.awaitPolicy(t, "stall", true)
	run("deployment/web left\n", "leave", "deployment/web", "-n", "stall")
	if got := template().Labels[enrol.Label]; got != "false" {
		t.Errorf("in an enrolled namespace a workload leaves with the label %q", got)
	}
	run("namespace/stall left\n", "leave", "stall")
	e.awaitPolicy(t, "stall", false)
}

// The keeper's token can write the bundle, and can do nothing else.
func (e *enrolment) testKeeperRights(t *testing.T) {
	keeper := e.as(t, "watchfan-keeper")
	ctx := t.Context()
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: enrol.BundleName}}
	maps := keeper.CoreV1().ConfigMaps("plain")
	_, err := maps.Create(ctx, bundle, metav1.CreateOptions{})
	refused("create without a name in the path", err)
	refused("delete the bundle", maps.Delete(ctx, enrol.BundleName, metav1.DeleteOptions{}))
	_, err = maps.List(ctx, metav1.ListOptions{})
	refused("list all ConfigMaps", err)
	_, err = maps.Patch(ctx, "other", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"}}`), metav1.PatchOptions{FieldManager: "x"})
	refused("apply another ConfigMap", err)
	_, err = keeper.CoreV1().Services(namespace).Get(ctx, "watchfan", metav1.GetOptions{})
	refused("get the Service", err)

	// Nobody else may write the bundle.
	admins := e.client.CoreV1().ConfigMaps("shop")
	_, err = e.client.CoreV1().ConfigMaps("plain").Create(ctx, bundle, metav1.CreateOptions{})
	refused("create a bundle as administrator", err)
	_, err = admins.Patch(ctx, enrol.BundleName, types.MergePatchType,
		[]byte(`{"data":{"`+enrol.AddressesKey+`":"192.0.2.1"}}`), metav1.PatchOptions{})
	refused("patch a bundle as administrator", err)

	// All that RBAC lets it do beyond what every account may.
	rules := func(account string) (all []string) {
		client := e.as(t, account)
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		if err != nil || review.Status.Incomplete {
			t.Fatal(err, review.Status)
		}
		for _, r := range review.Status.ResourceRules {
			all = append(all, fmt.Sprint(r.APIGroups, r.Resources, r.ResourceNames, r.Verbs))
		}
		return all
	}
	everybody := rules("default")
	got := slices.DeleteFunc(rules("watchfan-keeper"), func(r string) bool { return slices.Contains(everybody, r) })
	slices.Sort(got)
	want := []string{"[] [configmaps] [watchfan-enrol] [list watch create patch]", "[] [namespaces] [] [list watch]",
		"[] [services] [watchfan] [list watch]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A change of the Service, the CA or the bundle itself is in the bundle. While the tier's certificate
// is not valid for the name, or the label is gone, no more pods are enrolled.
func (e *enrolment) testRenewal(t *testing.T) {
	policy := corev1.IPFamilyPolicyPreferDualStack
	services := e.client.CoreV1().Services(namespace)
	s, err := services.Get(t.Context(), "watchfan", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.IPFamilyPolicy = &policy
	if s, err = services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil || len(s.Spec.ClusterIPs) != 2 {
		t.Fatal(s.Spec.ClusterIPs, err)
	}
	both := func(data map[string]string) bool {
		return complete(data) && data[enrol.AddressesKey] == strings.Join(s.Spec.ClusterIPs, ",")
	}
	e.bundle(t, "shop", both)
	steady.Until(t, "both aliases", func() error {
		pod := e.try(t, "shop", podOf("dual", nil, corev1.Container{Name: "c", Image: "i"}))
		if len(pod.Spec.HostAliases) != 2 {
			return fmt.Errorf("got %v", pod.Spec.HostAliases)
		}
		return nil
	})
	t.Run("Use", e.testUseAgain)

	bundles := e.client.CoreV1().ConfigMaps("shop")
	if err := bundles.Delete(t.Context(), enrol.BundleName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.bundle(t, "shop", both)

	old := readFile(t, filepath.Join(e.tls, "tls.crt"))
	apiserver := readFile(t, filepath.Join(e.Dir, "pki/ca.crt"))
	e.write(t, "tls.crt", apiserver) // an authority's is valid for no host
	e.bundle(t, "shop", func(data map[string]string) bool { return data[enrol.AddressesKey] == "" })
	e.awaitPolicy(t, "shop", false)
	e.write(t, "tls.crt", old)
	e.bundle(t, "shop", both)
	e.awaitPolicy(t, "shop", true)

	if _, err := e.client.CoreV1().Namespaces().Patch(t.Context(), "shop", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+enrol.Label+`":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.awaitPolicy(t, "shop", false)
	e.bundle(t, "shop", both) // pods mount it
}

// testUseAgain: a pod with addresses of both families uses the tier.
func (e *enrolment) testUseAgain(t *testing.T) {
	net, tier, _ := e.network(t)
	pod := e.create(t, "shop", podOf("dual", nil, corev1.Container{Name: "c", Image: "i"}))
	out, err := net.run(t, e.cluster, pod, "c", client("shop", "hello")...)
	if err != nil || tier.Opened.Load() == 0 {
		t.Fatalf("%v: %s", err, out)
	}
}
