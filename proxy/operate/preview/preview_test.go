package preview

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const views = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
idleTimeout: 1m
views:
  - name: quiet
    quiet: true
    resources:
      - resource: pods
        keep: [spec.nodeName, spec.nodename]
        where: status.phase!=Failed
        namespaces: {labels: team=a}
`

func pod(namespace, name string, rv int, phase, node string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d"},"spec":{"nodeName":%q},"status":{"phase":%q}}`,
		name, namespace, rv, node, phase)
}

// apiServer answers as a kube-apiserver that has four pods, and five events.
func apiServer(t *testing.T) string {
	event := func(w http.ResponseWriter, typ, pod string) {
		fmt.Fprintf(w, `{"type":%q,"object":{"kind":"Pod","apiVersion":"v1",%s}`+"\n", typ, pod[1:])
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`)
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/api/v1/namespaces" && query.Get("labelSelector") == "team=a":
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","resourceVersion":"1"}}]}`)
		case r.URL.Path != "/api/v1/pods":
			http.NotFound(w, r)
		case query.Get("watch") != "" && query.Get("resourceVersion") == "9":
			event(w, "MODIFIED", pod("a", "w", 10, "Pending", "n2")) // seen
			event(w, "MODIFIED", pod("a", "w", 11, "Running", "n2")) // not seen
			event(w, "MODIFIED", pod("a", "w", 12, "Failed", "n2"))  // leaves
			event(w, "DELETED", pod("a", "w", 13, "Failed", "n2"))   // not in the view
			event(w, "ADDED", pod("b", "v", 14, "Running", "n2"))    // in another namespace
		case query.Get("continue") == "":
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9","continue":"c"},"items":[%s,%s]}`, pod("a", "w", 1, "Running", "n1"), pod("a", "x", 2, "Failed", "n1"))
		default:
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9"},"items":[%s,%s]}`, pod("a", "y", 3, "Running", "n1"), pod("b", "z", 4, "Running", "n1"))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// try runs the command on files with some content.
func try(t *testing.T, server, views string, args ...string) (stdout string, err error) {
	dir := t.TempDir()
	write := func(name, content string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	kubeconfig := write("kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '"+server+"'}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
	var out, said strings.Builder
	c := Command()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append([]string{"try", write("f.yaml", views), "--kubeconfig", kubeconfig}, args...))
	c.SetOut(&out)
	c.SetErr(&said)
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTry(t *testing.T) {
	out, err := try(t, apiServer(t), views, "--resource=pods", "--for=1h")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"v1 pods of http", " in the view quiet\n", "objects                             4            2  50.0 %",
		"\nevents in ", "                        5            2  40.0 %", "misspelt", "spec.nodename", "406: in protobuf spec.nodename is not known",
		"Namespaces with the labels at the start: 1.", "views:\n", "          where: status.phase!=Failed\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "idleTimeout") {
		t.Errorf("got\n%s", out)
	}
}

func TestTryErrors(t *testing.T) {
	server := apiServer(t)
	f := func(views, want string, args ...string) {
		t.Helper()
		if _, err := try(t, server, views, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	two := "views: [{name: a, drop: [{fields: [data]}]}, {name: b, drop: [{fields: [data]}]}]\n"
	f(views, "--resource is missing")
	f(views, "--for=1ms", "--resource=pods", "--for=1ms")
	f(two, "has several views: give --view with one of a, b", "--resource=pods")
	f(two, "has no view c: give --view with one of a, b", "--resource=pods", "--view=c")
	f("a: b\n", "has no views", "--resource=pods")
	f(strings.Replace(views, "!=Failed", " Failed", 1), `f.yaml:4: views: line 10: views[0].resources[0].where: "status.phase Failed" is no condition: column 14`, "--resource=pods")
	f(views, `resolve "foos"`, "--resource=foos")
	f("views: 1\n", "f.yaml:1: views: line 1: views: give a list", "--resource=pods")
}
