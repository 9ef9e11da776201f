package deploytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// window is the time over which the dashboards' queries look back in this test.
const window = 10 * time.Second

// TestMonitoring lets Prometheus scrape watchfan under load and during faults. Then it evaluates
// each query of the dashboards and the alerts. Each has a result, and the right one where that is
// known.
func TestMonitoring(t *testing.T) {
	binary(t, "prometheus")
	l := startLoad(t)
	p := startPrometheus(t, l.admin)
	steady.Until(t, "first scrape", func() error { return p.nonempty(`watchfan_watchers`, time.Now()) })
	l.begin(t)
	l.relist(t)
	before := l.counts()
	time.Sleep(window) //testlint:allow timer the queries are about this time
	after := l.counts()
	now := after.at
	steady.Until(t, "scrape of this state", func() error {
		samples, err := p.query("min(timestamp(watchfan_watchers))", time.Now())
		if err == nil && (len(samples) != 1 || samples[0].value < float64(now.UnixMilli())/1000) {
			err = fmt.Errorf("the last scrape was %v, before %s", samples, now)
		}
		return err
	})

	t.Run("panels", func(t *testing.T) {
		truths := l.truths(before, after)
		for file, panels := range dashboards(t) {
			for _, panel := range panels {
				name := strings.TrimSuffix(file, ".json") + "/" + panel.Title
				var answers [][]sample
				for _, target := range panel.Targets {
					samples, err := p.query(substitute(target.Expr), now)
					if err != nil || len(samples) == 0 {
						t.Errorf("%s: %s: %d series, %v", name, target.Expr, len(samples), err)
					}
					answers = append(answers, samples)
					for _, s := range samples {
						if s.value < 0 {
							t.Errorf("%s: %s is %v", name, target.Expr, s.value)
						}
						if err := hasLabels(target.LegendFormat, s.labels); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
				if truth, ok := truths[name]; ok {
					delete(truths, name)
					if got := total(answers[0]); got < truth.least || got > truth.most {
						t.Errorf("%s: %s is %v, want %v to %v", name, panel.Targets[0].Expr, got,
							truth.least, truth.most)
					}
				}
			}
		}
		for name := range truths {
			t.Errorf("there is no panel %s", name)
		}
	})

	t.Run("alerts", func(t *testing.T) {
		for _, rule := range alertRules(t) {
			expr, err := metricsql.Parse(rule.Expr)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range withoutThresholds(expr) {
				if err := p.nonempty(part, now); err != nil {
					t.Errorf("%s: %s: %v", rule.Alert, part, err)
				}
			}
		}
	})

	t.Run("metrics", func(t *testing.T) { l.document(t) })

	// When the writes have stopped, the counters are exactly the clients' counts. Each client's
	// events began with the existing objects.
	l.pause.Store(true)
	steady.Until(t, "count of all deliveries", func() error {
		got, want := l.metric(t, "watchfan_delivered_events_total", `resource="configmaps"`),
			float64(l.delivered.Load())
		if got != want {
			return fmt.Errorf("%v, and clients have read %v", got, want)
		}
		return nil
	})
}

// counts are the counts of the clients and of the writer at one time.
type counts struct {
	at                       time.Time
	delivered, writes, turns int64
}

func (l *load) counts() counts {
	return counts{time.Now(), l.delivered.Load(), l.writes.Load(), l.turns.Load()}
}

// truth is the range for the result of a panel's first query, summed over its series.
type truth struct{ least, most float64 }

// lanes is the number of lanes: two resources, and the APIServices that watchfan follows for
// itself.
const lanes = 3

// truths returns the right results of panels, by dashboard and title.
func (l *load) truths(before, after counts) map[string]truth {
	exactly := func(v float64) truth { return truth{v, v} }
	about := func(v float64) truth { return truth{v * 0.8, v * 1.2} }
	seconds := after.at.Sub(before.at).Seconds()
	deliveries := float64(after.delivered-before.delivered) / seconds
	writes := float64(after.writes-before.writes) / seconds
	turns := float64(after.turns-before.turns) / seconds
	const watches = healthyClients + 1 // the parked one
	return map[string]truth{
		"overview/Replicas up":                   exactly(1),
		"overview/Watches":                       exactly(watches),
		"overview/Deliveries":                    about(deliveries),
		"overview/Parked":                        exactly(1.0 / watches),
		"overview/Upstream watches broken":       exactly(0),
		"overview/Never listed":                  exactly(0),
		"overview/Evicted or expired, 1 h":       {0.9, 2},
		"overview/Reads served here":             about(0.5),
		"overview/Certificate expires in":        {300 * 86400, 400 * 86400},
		"overview/Delivery, p99":                 {0.0001, 1},
		"overview/Panics":                        exactly(0),
		"resource/Upstream watches":              exactly(lanes),
		"resource/Lanes":                         exactly(lanes),
		"resource/Watches":                       exactly(watches),
		"resource/Deliveries per event":          about(healthyClients),
		"resource/Events from kube-apiserver":    about(writes),
		"resource/Deliveries":                    about(deliveries),
		"clients/Parked":                         exactly(1),
		"clients/Furthest behind":                {1, 50},
		"clients/Furthest behind, bytes":         {bigObject, 8 << 20},
		"clients/Evicted, 1 h":                   {0.9, 2},
		"clients/Events per write":               {1, 5},
		"clients/Rejected":                       about(turns),
		"clients/Rejected, 1 h":                  {10, 10000},
		"clients/Compression":                    {0.01, 0.9},
		"clients/Parked watches":                 exactly(1),
		"upstream/Requests answered here":        about(3 * turns),
		"upstream/Requests passed through":       about(3 * turns),
		"upstream/Watches spared":                exactly(watches - lanes),
		"upstream/Watches here per upstream one": exactly(watches / float64(lanes)),
		"upstream/Deliveries per upstream event": about(healthyClients),
		"upstream/Bytes out per byte in":         {healthyClients * 0.8, healthyClients * 1.2},
	}
}

func total(samples []sample) (sum float64) {
	for _, s := range samples {
		sum += s.value
	}
	return sum
}

// hasLabels returns an error if a legend names a label that the series does not have.
func hasLabels(legend string, labels map[string]string) error {
	for _, part := range strings.Split(legend, "{{")[1:] {
		name, _, _ := strings.Cut(part, "}}")
		if _, ok := labels[name]; !ok && name != "group" { // empty for the core group
			return fmt.Errorf("legend %s: there is no label %s in %v", legend, name, labels)
		}
	}
	return nil
}

// substitute replaces variables as Grafana does.
func substitute(expr string) string {
	return strings.NewReplacer("$__rate_interval", fmt.Sprint(window), "$job", "watchfan", "$instance", ".+",
		"$resource", ".+").Replace(expr)
}

// nonempty returns an error if Prometheus cannot evaluate an expression, or if the result has no
// series.
func (p *prometheus) nonempty(expr string, at time.Time) error {
	samples, err := p.query(expr, at)
	if err == nil && len(samples) == 0 {
		err = errors.New("no series")
	}
	return err
}

// withoutThresholds returns the expressions that an alert compares with numbers.
func withoutThresholds(e metricsql.Expr) []string {
	b, ok := e.(*metricsql.BinaryOpExpr)
	if !ok {
		return []string{string(e.AppendString(nil))}
	}
	switch strings.ToLower(b.Op) {
	case "and", "or", "unless":
		return append(withoutThresholds(b.Left), withoutThresholds(b.Right)...)
	case "==", "!=", ">", "<", ">=", "<=":
		return []string{string(b.Left.AppendString(nil))}
	}
	return []string{string(e.AppendString(nil))}
}

// TestReadsServedHere: the panel shows a share also where one of the two kinds of reads has no series,
// as cached reads have none without a lane.
func TestReadsServedHere(t *testing.T) {
	promtool := binary(t, "promtool")
	var expr string
	for _, panel := range dashboards(t)["overview.json"] {
		if panel.Title == "Reads served here" {
			expr = substitute(panel.Targets[0].Expr)
		}
	}
	const passed = `watchfan_passthrough_requests_total{job="watchfan",instance="i",verb="list",code="200"}`
	const cached = `watchfan_cached_requests_total{job="watchfan",instance="i",verb="list"}`
	for name, c := range map[string]struct {
		series []string
		want   string
	}{
		"none": {[]string{passed}, "0"},
		"half": {[]string{passed, cached}, "0.5"},
		"all":  {[]string{cached}, "1"},
	} {
		text := "evaluation_interval: 1s\ntests:\n  - interval: 1s\n    input_series:\n      - {series: up, values: 1x60}\n"
		for _, series := range c.series {
			text += fmt.Sprintf("      - {series: '%s', values: 0+10x60}\n", series)
		}
		text += fmt.Sprintf("    promql_expr_test:\n      - {eval_time: 30s, expr: '%s', exp_samples: [{labels: '{}', value: %s}]}\n",
			expr, c.want)
		file := filepath.Join(t.TempDir(), "test.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestAlertsFire: promtool runs the unit tests of deploy/alerts. Each alert has a test in which it
// fires, and one in which it does not.
func TestAlertsFire(t *testing.T) {
	promtool := binary(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "../alerts/watchfan.yaml"},
		{"test", "rules", "../alerts/watchfan_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Expr    string
				Samples []any `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	decode(t, "../alerts/watchfan_test.yaml", &file)
	var fires, silent []string
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Samples) > 0 {
				fires = append(fires, c.Expr)
			} else {
				silent = append(silent, c.Expr)
			}
		}
	}
	pages := map[string]string{"README.md": readFile(t, "../README.md"), "FALLBACK.md": readFile(t, "../FALLBACK.md")}
	for _, rule := range alertRules(t) {
		expr := fmt.Sprintf(`count by (instance) (ALERTS{alertname="%s", alertstate="firing"})`, rule.Alert)
		if !slices.Contains(fires, expr) || !slices.Contains(silent, expr) {
			t.Errorf("%s is not tested to fire, and to be silent", rule.Alert)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("%s lacks a summary, a description or a severity", rule.Alert)
		}
		anchor := strings.ToLower(rule.Alert)
		url, at, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		page := pages[path.Base(url)]
		if page == "" || at != anchor {
			t.Errorf("%s: its runbook_url is %q", rule.Alert, rule.Annotations["runbook_url"])
		}
		if n := strings.Count(page, `<a id="`+anchor+`"></a>`+rule.Alert); n != 1 {
			t.Errorf("%s: %d rows of %s have its anchor", rule.Alert, n, url)
		}
	}
}
