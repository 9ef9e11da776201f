//go:build nightly

package e2e_test

import (
	"testing"
)

// TestTwoLevels: watchers behind two watchfans receive what kube-apiserver's own watchers receive,
// while the watchfan in the middle is replaced.
func TestTwoLevels(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	s := newLevels(t, c, "--drain-duration=0s")
	x := &comparison{watchers: min(24, *watchers), namespaces: []string{"levels", "levels-b", "zlevels"}}
	x.midway = func() { s.restartLower(t) }
	x.end = func() {
		admin := s.upper.admin(t)
		if n := admin.metric(t, "watchfan_upstream_watch_breaks_total"); n == 0 {
			t.Error("the upper watchfan's watches did not break: nothing was replaced")
		}
		if n := admin.metric(t, "watchfan_upstream_relists_total"); n != 0 {
			t.Errorf("the upper watchfan listed anew %v times", n)
		}
	}
	x.run(t, c, s.upper)
}

// restartLower replaces the lower watchfan with another at the same address.
func (s *levels) restartLower(t *testing.T) {
	t.Helper()
	if err := s.lower.Stop(); err != nil {
		t.Error(err)
	}
	s.startLower(t)
	s.front.Redirect(s.lower.Ports.Secure)
}
