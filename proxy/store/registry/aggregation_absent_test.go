package registry_test

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// An outage of an API server without APIServices takes no resource away, whether it breaks connections or hangs.
func TestNoAPIServicesInOutage(t *testing.T) {
	for name, fail := range map[string]func(*proxytest.Call){"breaks": (*proxytest.Call).Abort, "hangs": (*proxytest.Call).Hang} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			foos := p.Up.Collection(proxytest.Foos)
			foos.Put("ns", "a", "1")
			w := p.Watch("%s?watch=1&resourceVersion=0", proxytest.Foos.Path())
			w.Want("ADDED ns/a 101")
			for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.WatchList, proxytest.Watch, proxytest.Probe, proxytest.Other} {
				p.Up.On(kind, 1000, fail)
			}
			foos.Reflector().Abort()
			time.Sleep(2 * time.Minute)
			if resp, body := p.Get(proxytest.Foos.Path() + "?resourceVersion=0"); resp.StatusCode != 200 {
				t.Errorf("%s: %s", resp.Status, body)
			}
			p.Passed(0)
		})
	}
}
