// Package deploytest tests deploy/: the chart with Helm's own library, every manifest against a
// real kube-apiserver, and the chart's rights, the dashboards and the alerts with the real program
// and a real Prometheus. It is in the module of deploy, so watchfan does not depend on Helm.
//
// The programs are those that make deploytest builds: of ../../bin, or of an environment variable such
// as WATCHFAN_BIN.
package deploytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// cluster is a devcluster and an administrator's clients of it.
type cluster struct {
	*proxytest.Cluster
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

var shared struct {
	sync.Once
	*cluster
	err error
}

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == inClusterClient {
		os.Exit(readInCluster(os.Args[2:]))
	}
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// theCluster returns the cluster that all tests share.
func theCluster(t *testing.T) *cluster {
	t.Helper()
	program := binary(t, "devcluster")
	shared.Do(func() { shared.cluster, shared.err = startCluster(program) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// binary returns a program that make deploytest builds.
func binary(t *testing.T, name string) string {
	t.Helper()
	return proxytest.Binary(t, strings.ToUpper(name)+"_BIN", name, "deploytest")
}

func startCluster(program string, args ...string) (*cluster, error) {
	args = append(args, "--apiserver-arg", "shutdown-watch-termination-grace-period=2s",
		"--apiserver-arg", "authorization-mode=Node", "--apiserver-arg", "enable-admission-plugins=NodeRestriction")
	running, err := proxytest.StartCluster(program, args...)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: running}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Ready.Kubeconfigs["admin"]); err == nil {
		c.config.QPS, c.config.WarningHandler = -1, rest.NoWarnings{}
		c.client, err = kubernetes.NewForConfig(c.config)
	}
	if err == nil {
		c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
		c.dynamic, err = dynamic.NewForConfig(c.config)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// apply applies an object as kubectl apply --server-side does. Fields that do not exist are errors.
func (c *cluster) apply(ctx context.Context, object *unstructured.Unstructured, dryRun bool) error {
	gvk := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	yes := true
	options := metav1.PatchOptions{FieldManager: "deploytest", FieldValidation: metav1.FieldValidationStrict,
		Force: &yes}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, content, options)
	return err
}

// dryRun applies objects without effect. It creates their namespaces if they do not exist.
func (c *cluster) dryRun(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if o.GetNamespace() != "" {
			c.namespace(t, o.GetNamespace())
		}
		if err := c.apply(t.Context(), o, true); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	o.SetName(name)
	if err := c.apply(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
}

// must applies a manifest.
func (c *cluster) must(t *testing.T, manifest string) {
	t.Helper()
	for _, o := range parse(t, manifest) {
		if err := c.apply(t.Context(), o, false); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// parse reads the objects of a manifest.
func parse(t *testing.T, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, document := range bytes.Split([]byte("\n"+manifest), []byte("\n---")) {
		var content map[string]any
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
	return objects
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
