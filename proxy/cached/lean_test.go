package cached_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/bubble"
)

// managed writes objects with managedFields.
type managed struct{ http.ResponseWriter }

func (w managed) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w managed) Write(p []byte) (int, error) {
	_, err := w.ResponseWriter.Write(bytes.ReplaceAll(p, []byte(`,"resourceVersion":`), []byte(`,"managedFields":[{}],"resourceVersion":`)))
	return len(p), err
}

// Where kube-apiserver leaves managedFields out on request, a lane whose clients all are lean asks for that. The first
// client that wants whole objects gets them from a lane of its own, and so do all who come later.
func TestLeanLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.List, proxytest.WatchList, proxytest.Watch, proxytest.Short} {
			up.On(kind, 1000, func(c *proxytest.Call) {
				switch accepts := c.R.Header.Get("Accept"); {
				case strings.Contains(accepts, "drop=-"):
					c.Fail(http.StatusNotAcceptable, "NotAcceptable", "there is no such field", 0)
					return
				case !strings.Contains(accepts, "drop=metadata.managedFields"):
					c.W = managed{c.W}
				}
				c.Serve()
			})
		}
		p := bubble.Start(t, up)
		count := func(name, encoding string) float64 {
			synctest.Wait()
			_, text := p.Admin("/metrics")
			return proxytest.SumMetric(text, name, `resource="configmaps"`, `encoding="`+encoding+`"`)
		}
		lanes := func(lean, whole float64) {
			t.Helper()
			if l, w := count("watchfan_upstream_watches", "json-lean"), count("watchfan_upstream_watches", "json"); l != lean || w != whole {
				t.Errorf("%v lean and %v other watches upstream, want %v and %v", l, w, lean, whole)
			}
		}
		watch := func() []*proxytest.Watcher {
			asks := []string{"Accept", "application/json;drop=metadata.managedFields"}
			return []*proxytest.Watcher{p.Send(bubble.Request{Target: bubble.AnyState, Header: asks}).Watch(), p.Watch("/views/lean%s", bubble.AnyState)}
		}
		p.CMs.Put("ns", "a", "1")
		early := watch()
		for _, w := range early {
			w.Await(2)
		}
		lanes(1, 0)
		whole := p.Watch(bubble.AnyState)
		whole.Await(2)
		late := watch()
		for _, w := range late {
			w.Await(2)
		}
		lanes(1, 1)
		if n := count("watchfan_lane_watchers", "json-lean"); n != 2 {
			t.Errorf("%v watches of the lean lane, want the 2 from before the other", n)
		}
		p.CMs.Put("ns", "b", "1")
		p.CMs.Delete("ns", "a")
		for _, w := range append(append(early, late...), whole) {
			events := w.Await(4)
			proxytest.WantStrings(t, "watch", proxytest.Strings(events), "ADDED ns/a 101", "END 101", "ADDED ns/b 102", "DELETED ns/a 103")
			for _, e := range events {
				if strings.Contains(e.Raw, "managedFields") != (w == whole && !e.End) {
					t.Errorf("got %s", e.Raw)
				}
			}
		}
		for _, w := range early {
			w.Close()
		}
		time.Sleep(20 * time.Minute)
		lanes(0, 1)
		p.Passed(0)
	})
}
