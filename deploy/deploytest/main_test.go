// Package deploytest tests deploy/: the chart with Helm's own library, every manifest against a
// real kube-apiserver, and the chart's rights, the dashboards and the alerts with the real program
// and a real Prometheus. It is a module of its own, so watchfan does not depend on Helm.
//
// It needs environment variables. DEVCLUSTER_BIN, WATCHFAN_BIN, PROMETHEUS_BIN and PROMTOOL_BIN are
// absolute paths of built programs. GRAFANA_SCHEMA is a folder in which grafana/package.json has
// been installed. The tests of the documents also need KUBECTL_BIN, HELM_BIN and BENCH_BIN.
package deploytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

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
)

const patience = 2 * time.Minute

// cluster is a devcluster and an administrator's clients of it.
type cluster struct {
	dir        string
	kubeconfig string
	caFile     string
	config     *rest.Config
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	stop       func() error
}

var shared = sync.OnceValues(func() (*cluster, error) {
	c, err := startCluster()
	running = c
	return c, err
})

var running *cluster // what shared has started

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		if err := running.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// theCluster returns the cluster that all tests share. If there is none, the test is skipped.
func theCluster(t *testing.T) *cluster {
	t.Helper()
	binary(t, "DEVCLUSTER_BIN")
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// binary returns the program that an environment variable names.
func binary(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set", variable)
		}
		t.Skipf("%s is not set: make deploytest sets it", variable)
	}
	return path
}

func startCluster() (*cluster, error) {
	program := os.Getenv("DEVCLUSTER_BIN")
	if program == "" {
		return nil, nil
	}
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-deploytest-")
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	cmd := exec.Command(program, "up", "--dir", dir, "--unsafe-no-fsync", "--apiserver-arg",
		"shutdown-watch-termination-grace-period=2s")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	c := &cluster{dir: dir, stop: func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return errors.Join(<-exited, os.RemoveAll(dir))
	}}
	//testlint:allow timer the condition is looked at again
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if content, err := os.ReadFile(filepath.Join(dir, "ready")); err == nil {
			return c, c.connect(content)
		}
		select {
		case err := <-exited:
			return nil, errors.Join(fmt.Errorf("devcluster: %w: %s", err, output.String()), os.RemoveAll(dir))
		default:
		}
	}
	return nil, errors.Join(fmt.Errorf("devcluster was not ready within %s", patience), c.stop())
}

func (c *cluster) connect(readyFile []byte) error {
	var ready struct {
		CAFile      string            `json:"caFile"`
		Kubeconfigs map[string]string `json:"kubeconfigs"`
	}
	err := json.Unmarshal(readyFile, &ready)
	if err != nil {
		return err
	}
	c.caFile, c.kubeconfig = ready.CAFile, ready.Kubeconfigs["admin"]
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return err
	}
	c.config.QPS = -1
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	c.dynamic, err = dynamic.NewForConfig(c.config)
	return err
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

// eventually waits until f is nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	//testlint:allow timer the condition is looked at again
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
