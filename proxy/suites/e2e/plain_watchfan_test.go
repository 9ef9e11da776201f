//go:build nightly || hollow

package e2e_test

import "testing"

// plainWatchfan starts a watchfan without the race detector. With it a process keeps its memory,
// and compression for hundreds of clients takes more than a processor.
func plainWatchfan(t *testing.T, c *cluster, args ...string) *watchfan {
	t.Helper()
	p := runWatchfan(t, binary(t, "WATCHFAN_PLAIN_BIN", "watchfan"), c.Ready.Kubeconfigs["admin"], args...)
	p.own = c
	return p
}
