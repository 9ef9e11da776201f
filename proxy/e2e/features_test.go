package e2e_test

import (
	"fmt"
	"testing"
)

// Feature gates of kube-apiserver that tests depend on. Before Kubernetes 1.34 WatchList is off by
// default, and sendInitialEvents is then an error.
const watchList = "WatchList"

// enables reports whether kube-apiserver has a feature gate that is on.
func (d *target) enables(t testing.TB, gate string) bool {
	t.Helper()
	return d.metric(t, "kubernetes_feature_enabled", fmt.Sprintf("name=%q", gate)) == 1
}
