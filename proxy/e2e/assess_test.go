package e2e_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAssessRights: without the right to get /metrics, assess says how to give it.
func TestAssessRights(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	cmd := exec.Command(binary(t, "WATCHFAN_BIN", "watchfan"), "assess", "--kubeconfig", c.Ready.Kubeconfigs["user"])
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "403 Forbidden to get /metrics: the kubeconfig's user needs this right") ||
		!strings.Contains(string(out), "kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics\n") {
		t.Errorf("%v: %s", err, out)
	}
}
