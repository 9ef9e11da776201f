package deploytest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// prometheus is a running Prometheus that scrapes each second.
type prometheus struct{ address string }

// startPrometheus starts a Prometheus that scrapes one target, with the job name that the rules of
// deploy/alerts need.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("../alerts/watchfan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: watchfan, static_configs: [{targets: [%q]}]}
`, rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{fmt.Sprint("127.0.0.1:", proxytest.FreePort(t))} //testlint:allow port Prometheus does not say which port it was given
	cmd := exec.Command(binary(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	running, err := proxytest.StartProcess(cmd, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.End(syscall.SIGTERM, steady.Patience); err != nil || t.Failed() {
			t.Logf("Prometheus: %v, %s\n%s", err, cmd.ProcessState, proxytest.Tail(running.Log, 200))
		}
	})
	awaitReady(t, p.address+"/-/ready")
	return p
}

// sample is one series of an instant query's answer.
type sample struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression as of a time. Samples that are not numbers are left out.
func (p *prometheus) query(expr string, at time.Time) ([]sample, error) {
	var answer []struct {
		Metric map[string]string
		Value  [2]any
	}
	parameters := url.Values{"query": {expr}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}}
	if err := p.get("/api/v1/query?"+parameters.Encode(), func(data json.RawMessage) error {
		var vector struct {
			ResultType string
			Result     json.RawMessage
		}
		if err := json.Unmarshal(data, &vector); err != nil {
			return err
		}
		if vector.ResultType != "vector" {
			return fmt.Errorf("a %s and no vector", vector.ResultType)
		}
		return json.Unmarshal(vector.Result, &answer)
	}); err != nil {
		return nil, err
	}
	var samples []sample
	for _, series := range answer {
		text, _ := series.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			samples = append(samples, sample{series.Metric, v})
		}
	}
	return samples, nil
}

// get calls an endpoint of the HTTP API.
func (p *prometheus) get(uri string, decode func(json.RawMessage) error) error {
	resp, err := http.Get("http://" + p.address + uri)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s: %s %v", answer.Status, answer.Error, answer.Warnings)
	}
	return decode(answer.Data)
}
