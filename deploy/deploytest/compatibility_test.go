package deploytest

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The table of versions says what the program, the chart and the tests say.
func TestCompatibility(t *testing.T) {
	document := readFile(t, "../README.md")
	_, section, ok := strings.Cut(document, "\n## Versions of Kubernetes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("deploy/README.md has no such section")
	}
	says := func(what string) {
		t.Helper()
		if !strings.Contains(section, what) {
			t.Errorf("deploy/README.md, Versions of Kubernetes, does not say %q", what)
		}
	}
	out, err := exec.Command(binary(t, "watchfan"), "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var program struct{ KubernetesVersion string }
	if err := json.Unmarshal(out, &program); err != nil {
		t.Fatal(err)
	}
	says("kube-apiserver " + strings.TrimPrefix(program.KubernetesVersion, "v"))

	var chart struct{ KubeVersion string }
	decode(t, "../chart/Chart.yaml", &chart)
	least := regexp.MustCompile(`^>=(\d+\.\d+)\.0-0$`).FindStringSubmatch(chart.KubeVersion)
	if least == nil {
		t.Fatalf("the chart's kubeVersion is %q", chart.KubeVersion)
	}
	says("| before " + least[1] + " | the chart does not install |")

	older := regexp.MustCompile(`(?m)^OLDER := v(\S+) v(\S+) v(\S+)$`).FindStringSubmatch(readFile(t, "../../Makefile"))
	if older == nil || older[1] != least[1] {
		t.Fatalf("make versions tests %v, and the chart installs from %s", older, least[1])
	}
	says("| " + strings.Join(older[1:], ", ") + " | tested: `make versions` ")
	if n := strings.Count(document, " Versions of Kubernetes\n"); n != 1 {
		t.Errorf("deploy/README.md has %d sections about versions", n)
	}

	releases := regexp.MustCompile(`v0\.\d+`).FindAllString(section, -1)
	if len(releases) != 3 {
		t.Errorf("it names the releases %v of client-go", releases)
	}
	source := readFile(t, "../../proxy/suites/proxytest/informers.go")
	for _, r := range releases {
		if !strings.Contains(source, `"`+r) {
			t.Errorf("make e2e runs no informers of client-go %s", r)
		}
	}
}
