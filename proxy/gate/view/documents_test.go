package view

import (
	"os"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/option"
)

// The views in deploy/VIEWS.md are right, their fields are known, and all can be made in protobuf.
func TestDocumentedViews(t *testing.T) {
	page, err := os.ReadFile("../../../deploy/VIEWS.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var o Options
		table := option.Table{Partial: true}
		o.AddTo(&table)
		if err := table.ReadConfig("VIEWS.md", []byte(block)); err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
		for _, c := range o.Views {
			v := newView(metrics.NewSet(), c)
			seen++
			for key := range readMessages().resources {
				at := strings.LastIndexByte(key, '/')
				gv, err := schema.ParseGroupVersion(key[:at])
				if err != nil {
					t.Fatal(err)
				}
				gvr := gv.WithResource(key[at+1:])
				if _, err := v.Variant(gvr, framing.Protobuf, false, false); err != nil && gv.Version == "v1" {
					t.Errorf("%s of %s: %v", c.Name, gvr, err)
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d views in deploy/VIEWS.md, want at least 8", seen)
	}
}
