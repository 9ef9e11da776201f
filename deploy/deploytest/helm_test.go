package deploytest

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	chartDir    = "../chart"
	releaseName = "watchfan"
	namespace   = "watchfan"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// template renders the chart as `helm template` does, for the dev cluster's version of Kubernetes.
func template(t *testing.T, text string) (*release.Release, error) {
	t.Helper()
	return templateFor(t, "v1.37.2", text)
}

func templateFor(t *testing.T, version, text string) (*release.Release, error) {
	t.Helper()
	return templateAs(t, releaseName, version, text)
}

func templateAs(t *testing.T, name, version, text string) (*release.Release, error) {
	t.Helper()
	kubeVersion, err := common.ParseKubeVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{})
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace = name, namespace
	install.KubeVersion = kubeVersion
	r, err := install.Run(loadChart(t), values(t, text))
	if err != nil {
		return nil, err
	}
	return r.(*release.Release), nil
}

// render returns the objects that the chart renders.
func render(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	r, err := template(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, r.Manifest)
}

// helm is Helm with a cluster.
func (c *cluster) helm(t *testing.T) *action.Configuration {
	t.Helper()
	settings := cli.New()
	settings.KubeConfig = c.Ready.Kubeconfigs["admin"]
	settings.SetNamespace(namespace)
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.NewTextHandler(io.Discard, nil)))
	if err := config.Init(settings.RESTClientGetter(), namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return config
}

// install installs the chart until the test ends.
func (c *cluster) install(t *testing.T, text string) *release.Release {
	t.Helper()
	install := action.NewInstall(c.helm(t))
	install.ReleaseName, install.Namespace, install.CreateNamespace = releaseName, namespace, true
	install.ServerSideApply, install.WaitStrategy, install.Timeout = true, kube.HookOnlyStrategy, time.Minute
	r, err := install.Run(loadChart(t), values(t, text))
	if err != nil {
		t.Fatalf("helm install: %v", err)
	}
	t.Cleanup(func() { c.uninstall(t) })
	return r.(*release.Release)
}

func (c *cluster) upgrade(t *testing.T, text string) *release.Release {
	t.Helper()
	upgrade := action.NewUpgrade(c.helm(t))
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = namespace, kube.HookOnlyStrategy, time.Minute
	r, err := upgrade.Run(releaseName, loadChart(t), values(t, text))
	if err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	return r.(*release.Release)
}

func (c *cluster) rollback(t *testing.T) {
	t.Helper()
	rollback := action.NewRollback(c.helm(t))
	rollback.WaitStrategy, rollback.Timeout = kube.HookOnlyStrategy, time.Minute
	if err := rollback.Run(releaseName); err != nil {
		t.Fatalf("helm rollback: %v", err)
	}
}

func (c *cluster) uninstall(t *testing.T) {
	t.Helper()
	uninstall := action.NewUninstall(c.helm(t))
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, time.Minute
	if _, err := uninstall.Run(releaseName); err != nil {
		t.Errorf("helm uninstall: %v", err)
	}
}
