package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each reason why no cluster can be found names the flag or variable, and says what to give.
func TestNoCluster(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, broken := write("empty", ""), write("broken", "{")
	good := write("good", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: https://127.0.0.1:1}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n")
	none := filepath.Join(dir, "none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a pod
	const cure = ": give a kubeconfig with --kubeconfig or in $KUBECONFIG, or run in a pod with a service account"
	f := func(o Options, variable, want string) {
		t.Helper()
		t.Setenv("KUBECONFIG", variable)
		_, err := o.Config()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v, $KUBECONFIG=%s: got %v, want %q", o, variable, err, want)
		}
	}
	f(Options{}, good, "")
	f(Options{}, none+string(os.PathListSeparator)+good, "")
	f(Options{Kubeconfig: good}, none, "")
	f(Options{Kubeconfig: good, Context: "a"}, "", "")
	f(Options{Kubeconfig: none}, good, "--kubeconfig="+none+" does not exist"+cure)
	f(Options{}, none, "$KUBECONFIG="+none+" does not exist"+cure)
	f(Options{Kubeconfig: empty}, "", "--kubeconfig="+empty+" is empty or has no current context"+cure)
	f(Options{}, empty, "$KUBECONFIG="+empty+" is empty or has no current context"+cure)
	f(Options{Kubeconfig: good, Context: "b"}, "", "--context=b: --kubeconfig="+good+" has no such context: kubectl config get-contexts lists them")
	f(Options{Kubeconfig: broken}, "", "--kubeconfig="+broken+" cannot be used: ")
}
