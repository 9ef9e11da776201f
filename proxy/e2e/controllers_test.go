package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"
)

// managerCollections are what the program controllers follows, and what is written to them.
var managerCollections = map[string]string{
	"configmaps": `{"metadata":{"name":%q},"data":{"k":"v"}}`,
	"pods":       `{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	"services":   `{"metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`,
}

// TestControllerRuntime: the cache of a controller-runtime manager for twenty namespaces holds what
// kube-apiserver lists, over as many connections as straight at kube-apiserver, and costs
// kube-apiserver three watches and not sixty.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
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
	create := func(namespace, name string) {
		t.Helper()
		for resource, object := range managerCollections {
			theirs.create(t, "/api/v1/namespaces/"+namespace+"/"+resource, fmt.Sprintf(object, name))
		}
	}
	for _, namespace := range append(namespaces, "default") {
		create(namespace, "first")
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangTime(30*time.Second))
	defer cancel()
	all := len(namespaces) * len(managerCollections)
	straight, watches := startManager(ctx, t, program, theirs, namespaces), managedWatches(t, theirs.target)
	if watches < all {
		t.Errorf("straight, kube-apiserver has %d watches, want %d", watches, all)
	}
	through := startManager(ctx, t, program, ours, namespaces)
	if n := managedWatches(t, theirs.target) - watches; n != len(managerCollections) {
		t.Errorf("watchfan has %d watches at kube-apiserver, want %d", n, len(managerCollections))
	}
	admin := p.admin(t)
	admin.awaitWatchers(t, all)
	for name, most := range map[string]int{
		"watchfan_passthrough_watches_total": 0, "watchfan_access_reviews_total": all,
	} {
		if n := admin.metric(t, name); n > float64(most) {
			t.Errorf("%s is %v, want at most %d", name, n, most)
		}
	}
	got, want := ours.connectionsOf(t, through.cmd.Process.Pid), theirs.connectionsOf(t, straight.cmd.Process.Pid)
	if got != want {
		t.Errorf("the manager has %d connections to watchfan, and %d to kube-apiserver", got, want)
	}
	for _, namespace := range namespaces {
		theirs.patch(t, "/api/v1/namespaces/"+namespace+"/configmaps/first", `{"data":{"k":"w"}}`)
		theirs.remove(t, "/api/v1/namespaces/"+namespace+"/pods/first")
		create(namespace, "last")
	}
	for _, m := range []*programOutput{straight, through} {
		var held map[string]map[string]string // by resource and key, the resourceVersion
		if err := json.Unmarshal([]byte(m.until(ctx, t, "{")[0]), &held); err != nil {
			t.Fatal(err)
		}
		for resource := range managerCollections {
			listed := versionsOf(t, theirs.target, collection{name: resource, root: "/api/v1"})
			maps.DeleteFunc(listed, func(key, _ string) bool { return !strings.HasPrefix(key, "managed-") })
			if !maps.Equal(held[resource], listed) {
				t.Errorf("%s holds the %s\n%v, want\n%v", m.name, resource, held[resource], listed)
			}
		}
	}
	cancel()
	_, _ = straight.cmd.Wait(), through.cmd.Wait()
	t.Logf("%d connections; %d watches served with %v access reviews", got, all,
		admin.metric(t, "watchfan_access_reviews_total"))
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
	out := startProgram(t, "the manager at "+w.name, exec.CommandContext(ctx, program,
		"--kubeconfig", w.kubeconfig(t, &api.AuthInfo{Token: w.token}), "--namespaces", strings.Join(namespaces, ","),
		"--until", "last"))
	out.until(ctx, t, "synced")
	return out
}
