package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// managerCollections are what the program controllers follows, and what is written to them.
var managerCollections = map[string]string{
	"configmaps": `{"metadata":{"name":%q},"data":{"k":"v"}}`,
	"pods":       `{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	"services":   `{"metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`,
}

// TestControllerRuntime: the cache of a controller-runtime manager for twenty namespaces holds what
// kube-apiserver lists, over no more connections than straight at kube-apiserver, and costs
// kube-apiserver three watches and not sixty.
func TestControllerRuntime(t *testing.T) {
	parallel(t)
	program := binary(t, "CONTROLLERS_BIN", "controllers")
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	theirs, ours := programWays(t, c, p)
	var namespaces []string
	for i := range 20 {
		namespaces = append(namespaces, fmt.Sprintf("managed-%d", i))
	}
	createNamespaces(t, theirs.target, namespaces...)
	for _, namespace := range append(namespaces, "default") {
		createManaged(t, theirs.target, namespace, "first")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := len(namespaces) * len(managerCollections)
	straight, watches := startManager(ctx, t, program, theirs, namespaces), managedWatches(t, theirs.target)
	if watches < all {
		t.Errorf("straight, kube-apiserver has %d watches, want %d", watches, all)
	}
	through := startManager(ctx, t, program, ours, namespaces)
	steady.Until(t, "end of the proofs", func() error { // which are watches, too
		if n := managedWatches(t, theirs.target) - watches; n != len(managerCollections) {
			return fmt.Errorf("watchfan has %d watches at kube-apiserver, want %d", n, len(managerCollections))
		}
		return nil
	})
	admin := p.admin(t)
	admin.awaitWatchers(t, all)
	for name, most := range map[string]int{
		"watchfan_passthrough_watches_total": 0,
		"watchfan_access_reviews_total":      2 * all, // for watches, and for the detector's lists
	} {
		if n := admin.metric(t, name); n > float64(most) {
			t.Errorf("%s is %v, want at most %d", name, n, most)
		}
	}
	got, want := ours.connectionsOf(t, through.cmd.Process.Pid), theirs.connectionsOf(t, straight.cmd.Process.Pid)
	// 60 watches and the detector's 60 lists are more than the hundred streams of a connection.
	if got > max(want, 2) {
		t.Errorf("the manager has %d connections to watchfan, and %d to kube-apiserver", got, want)
	}
	for _, namespace := range namespaces {
		changeManaged(t, theirs.target, namespace)
	}
	for _, m := range []*programOutput{straight, through} {
		checkManager(t, m, theirs.target, "managed-")
	}
	cancel()
	_, _ = straight.cmd.Wait(), through.cmd.Wait()
	t.Logf("%d connections; %d watches served with %v access reviews", got, all,
		admin.metric(t, "watchfan_access_reviews_total"))
}

// createManaged creates an object in each collection of a namespace.
func createManaged(t *testing.T, d *target, namespace, name string) {
	t.Helper()
	for resource, object := range managerCollections {
		d.create(t, "/api/v1/namespaces/"+namespace+"/"+resource, fmt.Sprintf(object, name))
	}
}

// changeManaged changes one of the first objects of a namespace, removes another, and creates the
// last ones.
func changeManaged(t *testing.T, d *target, namespace string) {
	t.Helper()
	d.patch(t, "/api/v1/namespaces/"+namespace+"/configmaps/first", `{"data":{"k":"w"}}`)
	d.remove(t, "/api/v1/namespaces/"+namespace+"/pods/first")
	createManaged(t, d, namespace, "last")
}

// checkManager fails the test unless a manager that has the last objects holds what kube-apiserver
// lists in the namespaces that begin with prefix.
func checkManager(t *testing.T, m *programOutput, theirs *target, prefix string) {
	t.Helper()
	var held map[string]map[string]string // by resource and key, the resourceVersion
	if err := json.Unmarshal([]byte(m.until(t, "{")[0]), &held); err != nil {
		t.Fatal(err)
	}
	for resource := range managerCollections {
		listed := versionsOf(t, theirs, "/api/v1/"+resource)
		maps.DeleteFunc(listed, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
		if !maps.Equal(held[resource], listed) || len(listed) == 0 {
			t.Errorf("%s holds the %s\n%v, want\n%v", m.name, resource, held[resource], listed)
		}
	}
}

// managedWatches returns how many watches kube-apiserver has of what managers follow.
func managedWatches(t *testing.T, d *target) (n int) {
	t.Helper()
	for resource := range managerCollections {
		n += upstreamWatchesOf(t, d, resource)
	}
	return n
}

// startManager starts the program controllers and returns when its cache is filled. It ends with
// ctx.
func startManager(ctx context.Context, t *testing.T, program string, w programWay, namespaces []string) *programOutput {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, "--kubeconfig", w.kubeconfig(t, &api.AuthInfo{Token: w.token}),
		"--namespaces", strings.Join(namespaces, ","), "--until", "last")
	cmd.Env = append(os.Environ(), proxytest.Detectors...)
	out := startProgram(t, "the manager at "+w.name, cmd)
	out.until(t, "synced")
	return out
}
