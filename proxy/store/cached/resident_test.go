package cached_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A resident resource that kube-apiserver does not have keeps /readyz from ok. The page and the log say
// why, and the log says it once.
func TestNoSuchResident(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		time.Sleep(time.Minute) // it is looked for every two seconds
		resp, body := p.Admin("/readyz")
		if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "[-]resident-resources failed: podz is not synced: "+
			"kube-apiserver has no such resource; see --resident-resources\n") {
			t.Errorf("got %s %s", resp.Status, body)
		}
		lines := p.Log.With("Waited for resident resource")
		if len(lines) != 1 || !strings.Contains(lines[0], `kube-apiserver has no resource podz in v1: not found`) {
			t.Errorf("logged %q", lines)
		}
	}, func(o *proxy.Options) { o.Cached.ResidentResources = []string{"podz"} })
}
