package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

var metricName = regexp.MustCompile(`\bwatchfan_[a-z_]+[a-z]`)

// knownMetrics returns the program's metrics, as its source spells them; those of a lane are spelled without the prefix.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	for _, file := range []string{"fanout/metrics.go", "proxy/metrics.go"} {
		for _, name := range metricName.FindAllString(readFile(t, "../../"+file), -1) {
			known[name] = true
		}
	}
	lane := readFile(t, "../../proxy/lane_metrics.go")
	for _, name := range metricName.FindAllString(lane, -1) {
		known[name] = true
	}
	for _, m := range regexp.MustCompile(`(?:name\(|\t)"([a-z_]+)"[):]`).FindAllStringSubmatch(lane, -1) {
		known["watchfan_"+m[1]] = true
	}
	if !known["watchfan_watchers"] || !known["watchfan_upstream_watches"] || !known["watchfan_cache_bytes"] || !known["watchfan_freshness_proofs_total"] {
		t.Fatalf("metrics are not where they were: %v", known)
	}
	return known
}

// TestDocumentedMetricsExist: each metric that a document, an alert or the notes name is one of the program's.
func TestDocumentedMetricsExist(t *testing.T) {
	known := knownMetrics(t)
	known["watchfan_delivered_bytes_per_second"] = true // made by the metrics adapter's rule in README.md
	files, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../chart/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range append(files, more...) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(content), -1) {
			n++
			if name = strings.TrimSuffix(name, "_bucket"); !known[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d metrics were read", n)
	}
}

// TestAlerts: each alert's expression can be read, and its alert has a row in README.md.
func TestAlerts(t *testing.T) {
	r, err := template(t, readFile(t, "testdata/everything.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	readme := readFile(t, "../README.md")
	n := 0
	for _, o := range parse(t, r.Manifest) {
		if o.GetKind() != "PrometheusRule" {
			continue
		}
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var rules monitoringv1.PrometheusRule
		if err := yaml.UnmarshalStrict(content, &rules); err != nil {
			t.Fatal(err)
		}
		for _, group := range rules.Spec.Groups {
			for _, rule := range group.Rules {
				n++
				if _, err := metricsql.Parse(rule.Expr.String()); err != nil {
					t.Errorf("%s: %v", rule.Alert, err)
				}
				if !strings.Contains(rule.Expr.String(), `namespace="watchfan",pod=~"watchfan-.*"`) {
					t.Errorf("%s is not about this release's pods: %s", rule.Alert, rule.Expr.String())
				}
				if !strings.Contains(readme, rule.Alert) {
					t.Errorf("%s has no row in README.md", rule.Alert)
				}
			}
		}
	}
	if n == 0 {
		t.Error("there are no alerts")
	}
}
