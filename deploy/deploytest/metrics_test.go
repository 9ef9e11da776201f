package deploytest

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var metricName = regexp.MustCompile(`\bwatchfan_[a-z_]+[a-z]`)

// TestDocumentedMetricsExist: each metric that a document, an alert, a dashboard or the chart's
// notes name is in METRICS.md.
func TestDocumentedMetricsExist(t *testing.T) {
	// The rule of the metrics adapter in README.md makes this one.
	known := map[string]bool{"watchfan_delivered_bytes_per_second": true}
	for _, name := range metricName.FindAllString(readFile(t, metricsFile), -1) {
		known[name] = true
	}
	var files []string
	for _, pattern := range []string{"../*.md", "../chart/templates/*", "../alerts/*", "../dashboards/*"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for _, name := range metricName.FindAllString(readFile(t, file), -1) {
			if name = strings.TrimSuffix(name, "_bucket"); !known[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
}

// rule is an alert of deploy/alerts.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	decode(t, "../alerts/watchfan.yaml", &file)
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no alerts")
	}
	return rules
}

// decode reads a YAML file.
func decode(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, name)), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestAlerts: the chart has the rules of deploy/alerts, for the release's pods. Each rule has a row
// in README.md or FALLBACK.md.
func TestAlerts(t *testing.T) {
	rows := readFile(t, "../README.md") + readFile(t, "../FALLBACK.md")
	want := alertRules(t)
	n := 0
	for _, o := range render(t, readFile(t, "testdata/everything.yaml")) {
		if o.GetKind() != "PrometheusRule" {
			continue
		}
		var rules monitoringv1.PrometheusRule
		strictly(t, o, &rules)
		for _, group := range rules.Spec.Groups {
			for _, got := range group.Rules {
				if n == len(want) {
					t.Fatalf("%s is not in deploy/alerts", got.Alert)
				}
				expr := strings.ReplaceAll(want[n].Expr, `job="watchfan"`, `namespace="watchfan",pod=~"watchfan-.*"`)
				if got.Expr.String() != expr || expr == want[n].Expr {
					t.Errorf("%s: got %s, want %s", got.Alert, got.Expr.String(), expr)
				}
				if got.Alert != want[n].Alert || got.Annotations["summary"] != want[n].Annotations["summary"] {
					t.Errorf("got %v, want %v", got, want[n])
				}
				if !strings.Contains(rows, got.Alert) {
					t.Errorf("%s has no row", got.Alert)
				}
				n++
			}
		}
	}
	if n != len(want) {
		t.Errorf("%d alerts, want %d", n, len(want))
	}
}

// TestDashboardConfigMaps: the chart's ConfigMaps contain the dashboards, and have the label of
// Grafana's sidecar.
func TestDashboardConfigMaps(t *testing.T) {
	got := make(map[string]string)
	for _, o := range render(t, readFile(t, "testdata/everything.yaml")) {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		if o.GetKind() == "ConfigMap" && o.GetLabels()["grafana_dashboard"] == "1" &&
			o.GetAnnotations()["grafana_folder"] == "watchfan" {
			maps.Copy(got, data)
		}
	}
	all := dashboards(t)
	if len(got) != len(all) {
		t.Errorf("%d dashboards, want %d", len(got), len(all))
	}
	for name := range all {
		if strings.TrimSpace(got["watchfan-"+name]) !=
			strings.TrimSpace(readFile(t, filepath.Join(dashboardDir, name))) {
			t.Errorf("the ConfigMap of %s does not hold it", name)
		}
	}
}
