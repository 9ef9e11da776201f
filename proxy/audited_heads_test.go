package proxy_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// What the audit log keeps of the long heads of open watches counts for their user, and is bounded.
func TestAuditedHeads(t *testing.T) {
	const limit, long = 64 << 20, 512 << 10
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		held := func() int64 {
			var d diagnose.DebugAccounts
			p.AdminJSON(diagnose.AccountsPath, &d)
			return d.Held["watches"]
		}
		watch := func(target, auditID int) *proxytest.Watcher {
			return p.Send(bubble.Request{
				Target: bubble.AnyState + "&x=" + strings.Repeat("x", target), Token: bubble.ClientToken,
				Header: []string{"Audit-Id", strings.Repeat("a", auditID)},
			}).Watch()
		}
		watch(1<<10, 36).Await(2)
		if n := held(); n != 0 {
			t.Errorf("%d bytes are held for a watch with a usual head", n)
		}
		const most = limit / 8 / long
		var open []*proxytest.Watcher
		for i := range most - 1 {
			w := watch([]int{long, 1}[i%2], []int{1, long}[i%2])
			w.Await(2)
			open = append(open, w)
		}
		if n := held(); n < (most-1)*long {
			t.Errorf("%d bytes are held for %d heads of %d", n, most-1, long)
		}
		for range 2 {
			watch(1, long).WantEnd()
		}
		if w := open[0]; !w.Open() || w.Code != http.StatusOK {
			t.Error("a watch within the bound has ended")
		}
		for _, w := range open {
			w.Close()
		}
		p.Until("end of the accounts", func() bool { return held() == 0 })
	}, func(o *proxy.Options) {
		o.Admission.MemoryLimit, o.Audit.AuditLogPath = limit, filepath.Join(t.TempDir(), "audit.log")
		o.Audit.AuditLogMaxSize = 0
		proxy.MemoryUsed(func() int64 { return 1 })(o)
	})
}
