package plugin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestMain fails when a test leaves a goroutine behind, but for client-go's, which stays when a port's
// second stream is refused.
func TestMain(m *testing.M) {
	steady.Main(m, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/portforward.(*PortForwarder).handleConnection.func1"))
}

// fakeCluster is a kube-apiserver with pods whose ports lead to admin ports of this process. It knows
// SPDY and, like an old kube-apiserver, no WebSocket.
type fakeCluster struct {
	*httptest.Server
	items  []string                    // JSON of pods
	admin  map[string]*httptest.Server // by namespace/name:port
	lists  map[string]string           // answers to requests without everyPod, by path
	secret string                      // a path below which nothing may be seen; "" for none

	mu    sync.Mutex
	asked []string
}

func newFakeCluster(t *testing.T) *fakeCluster {
	f := &fakeCluster{admin: make(map[string]*httptest.Server)}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// add adds a pod with an admin port, which answers with the pod's name.
func (f *fakeCluster) add(t *testing.T, namespace, name, phase string, port int) {
	ports := ""
	if port != adminPort {
		ports = fmt.Sprintf(`{"name":"https","containerPort":8443},{"name":"admin","containerPort":%d}`, port)
	}
	f.items = append(f.items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"spec":{"containers":[{"ports":[%s]}]},"status":{"phase":%q}}`,
		name, namespace, ports, phase))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "watchfan")
		if id, one := strings.CutPrefix(r.URL.Path, "/debug/watchers/"); one {
			fmt.Fprintf(w, "watch %s of %s\n", id, name)
		} else if r.URL.Query().Get("format") == "text" {
			fmt.Fprintf(w, "7 watches of %s\n", name)
		} else if r.URL.Path == "/debug/lanes" {
			fmt.Fprint(w, `{"lanes":[{},{}]}`)
		} else if name == "watchfan-tier" {
			fmt.Fprint(w, `{"total":7,"watchers":[{"client":"10.9.0.1:1"},{"client":"10.9.0.1:2"},{"client":"10.1.0.5:4000"}]}`)
		} else if name == "watchfan-many" {
			fmt.Fprint(w, `{"total":10001,"matching":10001,"watchers":[{"client":"10.1.0.5:4001"}]}`)
		} else {
			fmt.Fprint(w, `{"total":7,"watchers":[{"id":5,"client":"10.1.0.5:4000"}],`+
				`"passedThrough":{"watchers":[{"client":"[fd00::5]:1"}]}}`)
		}
	}))
	t.Cleanup(server.Close)
	f.admin[fmt.Sprintf("%s/%s:%d", namespace, name, port)] = server
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Upgrade"))
	f.mu.Unlock()
	m := regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/portforward$`).FindStringSubmatch(r.URL.Path)
	switch {
	case m != nil && r.Header.Get("Upgrade") == "websocket":
		http.Error(w, "unable to upgrade: unable to negotiate protocol", http.StatusForbidden)
	case m != nil:
		f.forward(w, r, m[1]+"/"+m[2])
	case f.lists[r.URL.Path] != "" && r.URL.Query().Get("labelSelector") != everyPod:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, f.lists[r.URL.Path])
	case strings.Contains(r.URL.Path, "/forbidden/"), f.secret != "" && strings.HasPrefix(r.URL.Path, f.secret):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"pods is forbidden: User \"eve\" cannot list it"}`)
	case r.URL.Path == "/api/v1/pods" || strings.HasSuffix(r.URL.Path, "/pods"):
		items := slices.DeleteFunc(slices.Clone(f.items), func(s string) bool {
			namespace := strings.Split(r.URL.Path, "/")
			name, named := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
			return r.URL.Path != "/api/v1/pods" && !strings.Contains(s, `"namespace":"`+namespace[4]+`"`) ||
				named && !strings.Contains(s, `"name":"`+name+`"`) || r.URL.Query().Get("labelSelector") != everyPod
		})
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, strings.Join(items, ","))
	default:
		http.NotFound(w, r)
	}
}

// forward does what kube-apiserver and a kubelet do together: it connects each data stream to a port
// of the pod.
func (f *fakeCluster) forward(w http.ResponseWriter, r *http.Request, pod string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream)
	done := make(chan struct{})
	defer close(done)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		go func() {
			select {
			case streams <- s:
			case <-done: // The connection ended with the stream.
			}
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-streams:
			if s.Headers().Get("streamType") == "error" {
				_ = s.Close()
				continue
			}
			running.Go(func() { f.connect(s, pod+":"+s.Headers().Get("port")) })
		}
	}
}

func (f *fakeCluster) connect(s httpstream.Stream, to string) {
	server := f.admin[to]
	if server == nil {
		_ = s.Reset()
		return
	}
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		_ = s.Reset()
		return
	}
	go func() {
		_, _ = io.Copy(c, s)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(s, c)
	_ = s.Close()
	_ = c.Close()
}

// kubeconfig returns a file that names the cluster.
func (f *fakeCluster) kubeconfig(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	content := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + f.URL + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// try runs kubectl watchfan with a kubeconfig of the cluster.
func (f *fakeCluster) try(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", f.kubeconfig(t))
	return run(t.Context(), args...)
}

func run(ctx context.Context, args ...string) (stdout string, err error) {
	var out strings.Builder
	c := Command()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	err = c.ExecuteContext(ctx)
	return out.String(), err
}

// Both commands reach the admin ports of all running pods, at the port that a pod names.
func TestPods(t *testing.T) {
	f := newFakeCluster(t)
	f.add(t, "watchfan", "watchfan-a", "Running", 9002)
	f.add(t, "kube-system", "watchfan-b", "Running", adminPort)
	f.add(t, "kube-system", "watchfan-c", "Pending", adminPort)
	check := func(wantOut, wantErr string, args ...string) {
		t.Helper()
		stdout, err := f.try(t, args...)
		match := func(want, got string) bool { return regexp.MustCompile(`(?s)^` + want + `$`).MatchString(got) }
		if !match(wantOut, stdout) || !match(wantErr, fmt.Sprint(err)) {
			t.Errorf("kubectl watchfan %s: %v\n%swant %s\n%s", strings.Join(args, " "), err, stdout, wantErr, wantOut)
		}
	}
	check(`POD watchfan/watchfan-a\n\n7 watches of watchfan-a\n\nPOD kube-system/watchfan-b\n\n7 watches of watchfan-b\n`, "<nil>", "top")
	check(`\n7 watches of watchfan-b\n`, "<nil>", "top", "-n", "kube-system", "--user", "alice")
	check(`\n7 watches of watchfan-a\n`, "<nil>", "top", "--once", "--pod=watchfan-a")
	check(`POD watchfan/watchfan-a\nwatch 5 of watchfan-a\n\nPOD kube-system/watchfan-b\nwatch 5 of watchfan-b\n`, "<nil>", "explain")
	check(`watch 9 of watchfan-b\n`, "<nil>", "explain", "9", "--pod", "watchfan-b")
	check("", "explain 9: IDs belong to a pod: give --pod with one of watchfan-a, watchfan-b", "explain", "9")
	check("", `no pod of watchfan runs in namespace kube-system with the name watchfan-c: 1 match .*, and none of them is running`,
		"top", "--pod", "watchfan-c", "-n", "kube-system")
	check("", `no pod of watchfan runs in any namespace: 0 match "app=x", .*`, "top", "-l", "app=x")
	check("", `--admin is for watchfan top.*`, "top", "--admin=http://x")
	check("", `unknown command "tpo" for "kubectl watchfan".*`, "tpo")
	for _, path := range []string{"watchfan/pods/watchfan-a", "kube-system/pods/watchfan-b"} {
		path = "/api/v1/namespaces/" + path + "/portforward "
		if !slices.Contains(f.asked, "GET "+path+"websocket") || !slices.Contains(f.asked, "POST "+path+"SPDY/3.1") {
			t.Errorf("forwarding asked for %v, want WebSocket first and then SPDY for %s", f.asked, path)
		}
	}
}

// enrolled counts the pods of each workload, and the watches of their addresses at all pods of watchfan.
func TestEnrolled(t *testing.T) {
	f := newFakeCluster(t)
	const pod = `{"metadata":{"name":"web-1-%[1]s","namespace":"shop","creationTimestamp":"2020-01-01T00:00:00Z",` +
		`"labels":{"pod-template-hash":"1"%[2]s},` +
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","uid":"u","controller":true}]},` +
		`"spec":{"hostNetwork":%[3]s},"status":{"podIP":"%[4]s","podIPs":[%[6]s{"ip":"%[4]s"}],"phase":"%[5]s"}}`
	const yes, no = `,"watchfan.io/enrolled":"true"`, `,"watchfan.io/enrol":"false"`
	f.lists = map[string]string{
		"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","items":[` +
			`{"metadata":{"name":"shop","labels":{"watchfan.io/enrol":"true","watchfan.io/view":"lean"}}}]}`,
		"/api/v1/namespaces/shop/pods": `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join([]string{
			fmt.Sprintf(pod, "a", yes, "false", "10.1.0.5", "Running", ""),
			fmt.Sprintf(pod, "b", yes, "false", "10.1.0.10", "Running", `{"ip":"fd00::5"},`),
			fmt.Sprintf(pod, "c", "", "false", "10.1.0.6", "Running", ""), fmt.Sprintf(pod, "d", "", "true", "10.1.0.7", "Running", ""),
			fmt.Sprintf(pod, "e", no, "false", "10.1.0.8", "Running", ""),
			fmt.Sprintf(pod, "f", yes, "false", "10.1.0.9", "Succeeded", ""),
		}, ",") + `]}`,
	}
	stdout, err := f.try(t, "enrolled")
	if want := `shop +deployment/web +2/3 +\d+y\S* +lean +-\n$`; err != nil || !regexp.MustCompile(want).MatchString(stdout) {
		t.Errorf("without a pod of watchfan: %v\n%s\nwant %s", err, stdout, want)
	}
	f.add(t, "watchfan", "watchfan-a", "Running", 9002)
	f.add(t, "watchfan", "watchfan-b", "Running", 9002)
	stdout, err = f.try(t, "enrolled", "-n", "shop")
	want := `shop +deployment/web +2/3 +\d+y\S* +lean +2 \(2 pass through\)\n\n` +
		`kube-apiserver has 4 watches of watchfan in place of its clients' 14\.\n$`
	if err != nil || !regexp.MustCompile(want).MatchString(stdout) {
		t.Errorf("%v\n%s\nwant %s", err, stdout, want)
	}
	f.add(t, "watchfan", "watchfan-many", "Running", 9002)
	stdout, err = f.try(t, "enrolled", "-n", "shop")
	if err != nil || !strings.Contains(stdout, " 3 (2 pass through)\n\nA pod of watchfan has more watches than it lists") {
		t.Errorf("%v\n%s", err, stdout)
	}
	for args, want := range map[string]string{
		"enrol shop -n shop":             "give TYPE/NAME with -n",
		"enrol deployment/web":           "give its namespace with -n",
		"leave job/x -n shop":            "give deployment/NAME",
		"enrol shop --view=A":            "--view=A is no name: give lower-case letters",
		"enrol sts/x -n shop --view=a":   "sts/x: a namespace names a view",
		"enrol shop --dry-run=client":    "--dry-run=client is unknown: give server or none",
		"leave shop --output=json":       "--output=json is unknown: give name or yaml",
		"enrol deployments/web -n a b c": "accepts 1 arg",
	} {
		if _, err := f.try(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// The DaemonSet's pods watch at the tier: their watches there are no clients', and none is at kube-apiserver.
func TestEnrolledOnNodes(t *testing.T) {
	f := newFakeCluster(t)
	f.lists = map[string]string{"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","items":[]}`}
	f.add(t, "watchfan", "watchfan-node-a", "Running", 9002)
	f.items[0] = strings.Replace(f.items[0], `"namespace":"watchfan"`, `"namespace":"watchfan","labels":{"app.kubernetes.io/name":"watchfan-node"}`, 1)
	f.items[0] = strings.Replace(f.items[0], `"phase"`, `"podIPs":[{"ip":"10.9.0.1"}],"phase"`, 1)
	if stdout, err := f.try(t, "enrolled"); err != nil || strings.Contains(stdout, "kube-apiserver has") {
		t.Errorf("without the tier: %v\n%s", err, stdout)
	}
	f.add(t, "watchfan", "watchfan-tier", "Running", 9002)
	stdout, err := f.try(t, "enrolled")
	if want := "\nkube-apiserver has 2 watches of watchfan in place of its clients' 12.\n"; err != nil || !strings.HasSuffix(stdout, want) {
		t.Errorf("%v\n%s\nwant %s", err, stdout, want)
	}
}

// enrol says how workloads with pods from before follow their namespace. kubectl restarts some kinds of apps alone.
func TestRestart(t *testing.T) {
	var items []string
	for _, owner := range []string{`apps/v1","kind":"ReplicaSet","name":"web-1`, `apps/v1","kind":"StatefulSet","name":"db`,
		`batch/v1","kind":"Job","name":"once`, `apps.kruise.io/v1","kind":"StatefulSet","name":"cache`} {
		items = append(items, `{"metadata":{"name":"a","namespace":"shop","labels":{"pod-template-hash":"1"},`+
			`"ownerReferences":[{"apiVersion":"`+owner+`","uid":"u","controller":true}]}}`)
	}
	const namespace = `"metadata":{"name":"shop","labels":{"watchfan.io/enrol":"true"}}}`
	f := newFakeCluster(t)
	f.lists = map[string]string{
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/enrol.watchfan.io": `{"kind":"MutatingAdmissionPolicy","apiVersion":"v1"}`,
		"/api/v1/namespaces":                                `{"kind":"NamespaceList","apiVersion":"v1","items":[{` + namespace + `]}`,
		"/api/v1/namespaces/shop":                           `{"kind":"Namespace","apiVersion":"v1",` + namespace,
		"/api/v1/namespaces/shop/configmaps/watchfan-enrol": `{"kind":"ConfigMap","apiVersion":"v1","data":{"clusterIPs":"10.0.0.7"}}`,
		"/api/v1/namespaces/shop/pods": `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(items, ",") + `],` +
			`"metadata":{"labels":{"watchfan.io/enrolled":"true"}}}`, // it is also the answer to a dry run
	}
	out, err := f.try(t, "enrol", "shop")
	const want = "namespace/shop enrolled\n" +
		"These use watchfan once they are restarted:\n  kubectl -n shop rollout restart deployment/web statefulset/db\n" +
		"These use watchfan once their pods are created again:\n  job/once statefulset/cache\n"
	if err != nil || out != want {
		t.Errorf("%v\n%swant %s", err, out, want)
	}
}

// Who may not see whether the cluster has the policy is not told that a workload is enrolled where no pod is, and the
// workload stays as it is.
func TestUnseenPolicy(t *testing.T) {
	f := newFakeCluster(t)
	f.secret = "/apis/admissionregistration.k8s.io/"
	pods := func(labels string) {
		f.lists = map[string]string{
			"/api/v1/namespaces/shop":                           `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","labels":{"watchfan.io/enrol":"pods"}}}`,
			"/api/v1/namespaces/shop/configmaps/watchfan-enrol": `{"kind":"ConfigMap","apiVersion":"v1","data":{"clusterIPs":"10.0.0.7"}}`,
			"/api/v1/namespaces/shop/pods":                      `{"kind":"Pod","apiVersion":"v1","metadata":{` + labels + `}}`, // of a dry run
			"/apis/apps/v1/namespaces/shop/deployments/web":     `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"}}`,
		}
	}
	pods("")
	_, err := f.try(t, "enrol", "deployment/web", "-n", "shop")
	if err == nil || !strings.Contains(err.Error(), "enrols no pods in namespace shop") || !strings.Contains(err.Error(), "--template") {
		t.Errorf("got %v", err)
	}
	if slices.ContainsFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, http.MethodPatch) }) {
		t.Errorf("asked for %s", f.asked)
	}
	pods(`"labels":{"watchfan.io/enrolled":"true"}`)
	if out, err := f.try(t, "enrol", "deployment/web", "-n", "shop"); err != nil || out != "deployment/web enrolled\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// A dry run does not wait for a bundle that nobody writes, because the namespace does not get the label.
func TestDryRun(t *testing.T) {
	f := newFakeCluster(t)
	f.lists = map[string]string{
		"/api/v1/namespaces/shop":                         `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop"}}`,
		"/apis/apps/v1/namespaces/shop/deployments/web":   `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"}}`,
		"/api/v1/namespaces/shop/serviceaccounts/default": `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}`,
	}
	const want = "namespace shop has neither the label watchfan.io/enrol nor a ConfigMap watchfan-enrol with addresses: " +
		"give it the label watchfan.io/enrol=pods first"
	_, err := f.try(t, "enrol", "deployment/web", "-n", "shop", "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// A pod whose port is closed, and a kube-apiserver that refuses, are named.
func TestRefused(t *testing.T) {
	f := newFakeCluster(t)
	f.items = []string{`{"metadata":{"name":"w","namespace":"n"},"status":{"phase":"Running"}}`}
	_, err := f.try(t, "top")
	if err == nil || !strings.Contains(err.Error(), "watchfan's admin port does not answer at http://127.0.0.1:") {
		t.Errorf("got %v", err)
	}
	f.items = slices.Repeat(f.items, mostPods+1)
	_, err = f.try(t, "top")
	if err == nil || !strings.Contains(err.Error(), "51 pods of watchfan run in any namespace, more than 50: choose some with --pod, --pod-namespace or --pod-selector") {
		t.Errorf("got %v", err)
	}
	f.items = nil
	_, err = f.try(t, "top", "-n", "forbidden")
	if err == nil || !strings.Contains(err.Error(), `list the pods of watchfan: pods is forbidden: User "eve" cannot list it`) {
		t.Errorf("got %v", err)
	}
}

// A kube-apiserver that is hostile gets a clear error: it sends the plugin nowhere else, has it read no answer
// without an end, and keeps no endless number of values.
func TestHostileCluster(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked elsewhere", r.URL) }))
	defer elsewhere.Close()
	redirect := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(code)
		}
	}
	repeat := func(head, body string, bytes int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, head)
			for part := strings.Repeat(body, 1<<20/len(body)); bytes > 0; bytes -= len(part) {
				_, _ = io.WriteString(w, part)
			}
		}
	}
	say := func(answer string) http.HandlerFunc { return repeat(answer, " ", 0) }
	running := func(metadata string) http.HandlerFunc {
		return say(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":` + metadata + `,"status":{"phase":"Running"}}]}`)
	}
	tunnel := http.NewServeMux()
	tunnel.Handle("/api/v1/pods", running(`{"name":"w","namespace":"n"}`))
	tunnel.Handle("/", redirect(http.StatusTemporaryRedirect))
	endless := say(`{"kind":"List","apiVersion":"v1","metadata":{"continue":"more"},"items":[{"metadata":{"name":"n"}}]}`)
	for _, c := range []struct {
		args    string
		cluster http.Handler
		want    string
	}{
		{"top", redirect(http.StatusFound), "302"},
		{"top", repeat("", " ", maxAnswer+1), "the answer has more than 64 MiB"},
		{"top", repeat(`{"items":[{}`, ",{}", 2*mostValues), "the answer has more than 8388608 values of JSON"},
		{"enrol n", repeat(`[1`, ",1", 3*mostValues), "the answer has more than 8388608 values of JSON"},
		{"top", say(`{"items":"none"}`), "cannot unmarshal string"},
		{"top", say("<html>"), "invalid character '<'"},
		{"top", running(`{"name":"../../../x","namespace":"n"}`), `no pod can have the name "../../../x" in a namespace "n"`},
		{"top", running(`{"name":"w\u001b[2J","namespace":"n"}`), `no pod can have the name "w\x1b[2J"`},
		{"top", tunnel, "reach port 8002 of pod n/w"},
		{"enrol n", redirect(http.StatusFound), "302"},
		{"enrol n", repeat("", " ", maxAnswer+1), "the answer has more than 64 MiB"},
		{"enrol deployment/web -n n", say("[]"), "cannot unmarshal array"},
		{"enrolled", endless, "the list of pods does not end"},
	} {
		server := httptest.NewServer(c.cluster)
		f := &fakeCluster{Server: server}
		if out, err := f.try(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300q, %.300v, want %s", c.args, out, err, c.want)
		}
		server.Close()
	}
}

// Who creates a pod may write any text in the place of its owner. It reaches no terminal and no command line.
func TestHostileOwner(t *testing.T) {
	f := newFakeCluster(t)
	f.lists = map[string]string{
		"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"shop","labels":{"watchfan.io/enrol":"true"}}}]}`,
	}
	for _, owner := range []string{`"kind":"Deployment","name":"web; reboot"`, `"kind":"Deployment","name":"\u001b[2J"`, `"kind":"$(reboot)","name":"web"`} {
		f.lists["/api/v1/namespaces/shop/pods"] = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"shop",` +
			`"ownerReferences":[{"apiVersion":"apps/v1","uid":"u","controller":true,` + owner + `}]}}]}`
		if out, err := f.try(t, "enrolled"); err != nil || !strings.Contains(out, "shop        pod/a      0/1 ") {
			t.Errorf("%s: %v, %q", owner, err, out)
		}
	}
}

// The plugin's flags and those of package diagnose have different names.
func TestFlagsAreApart(t *testing.T) {
	for _, c := range Command().Commands() {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if c.InheritedFlags().Lookup(f.Name) != nil || c.Parent().PersistentFlags().Lookup(f.Name) != nil {
				t.Errorf("watchfan %s has the flag %s too", c.Name(), f.Name)
			}
		})
	}
}

// A kube-apiserver that never answers is given up when the command is interrupted.
func TestInterrupted(t *testing.T) {
	began := make(chan struct{})
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
	}))
	defer server.Close()
	defer close(release)
	f := &fakeCluster{Server: server}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-began
		cancel()
	}()
	if _, err := run(ctx, "top", "--kubeconfig", f.kubeconfig(t)); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}
