package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRecipeOfPrometheus: Prometheus' discovery takes the lines of deploy/RECIPES.md, and finds the same
// targets with them through watchfan as with kube-apiserver's address in them.
func TestRecipeOfPrometheus(t *testing.T) {
	parallel(t)
	program := binary(t, "DISCOVERY_BIN", "discovery")
	text, err := os.ReadFile("../../../deploy/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n## Prometheus\n.*?\n```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("deploy/RECIPES.md has no YAML for Prometheus")
	}
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	theirs, ours := programWays(t, c, p)
	createFollowed(t, theirs.target)
	var copies []func() ([]string, error)
	for _, w := range []programWay{theirs, ours} {
		dir := t.TempDir()
		recipe, token, state := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "token"), filepath.Join(dir, "state")
		config := string(block[1])
		for placeholder, value := range map[string]string{
			"https://watchfan.watchfan.svc:443":                   w.base,
			"/var/run/secrets/kubernetes.io/serviceaccount/token": token,
			"/etc/watchfan/ca.crt":                                w.authority,
		} {
			if !strings.Contains(config, placeholder) {
				t.Fatalf("the recipe has no %s", placeholder)
			}
			config = strings.Replace(config, placeholder, value, 1)
		}
		for file, content := range map[string]string{recipe: config, token: w.token} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runFollower(t, "discovery", exec.Command(program, recipe, state))
		copies = append(copies, linesOf(state))
	}
	agree(t, []string{"first"}, copies...)
	admin := p.admin(t)
	if n, passed := admin.metric(t, "watchfan_lane_watchers", `resource="pods"`), admin.metric(t, "watchfan_passthrough_watches_total"); n != 1 || passed > 0 {
		t.Errorf("watchfan has %v watches of pods, and has passed %v through, want 1 and none", n, passed)
	}
	changeFollowed(t, theirs.target)
	agree(t, []string{`"__meta_kubernetes_pod_label_step":"2"`}, copies...)
}
