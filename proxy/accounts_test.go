package proxy_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// accounts returns what /debug/accounts says.
func (f *fan) accounts() (d diagnose.DebugAccounts) {
	f.t.Helper()
	code, _, body := f.askAdmin(diagnose.AccountsPath, "application/json")
	if err := json.Unmarshal([]byte(body), &d); code != http.StatusOK || err != nil {
		f.t.Fatalf("%d, %v: %s", code, err, body)
	}
	return d
}

// One user watches a resource in two representations. When memory is short the copy is given up, and
// its watch passes through; the other one goes on, although the same user alone keeps its lane.
func TestCopyGivenUp(t *testing.T) {
	t.Parallel()
	f, percent := memoryOf(t, func(o *proxy.Options) { o.AdminPort = proxy.AnyPort })
	f.cms.Put("ns", "large", strings.Repeat("x", 2<<20))
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	whole := f.watch(anyState)
	whole.Await(2)
	part := proxytest.Open(t, f.insecure+anyState, "Accept", metadata)
	part.Await(2)
	f.until("count of both lanes", func() bool {
		d := f.accounts()
		return d.Held["lanes"] > 2<<20 && d.Held["copies"] > 2<<20 && len(d.Largest) == 1 && d.Largest[0].Things == 2
	})
	if text := f.lanesText(); !strings.Contains(text, " lane ") || !strings.Contains(text, " copy ") {
		t.Errorf("/debug/lanes does not say what counts for one source:\n%s", text)
	}
	percent.Store(82)
	f.awaitLog("Gave lane up", "encoding=json-metadata-v1")
	f.awaitLog("Cut what was held for a client", "memoryShort=true")
	if err := part.Ended(); err != nil {
		t.Errorf("the watch of the copy ended with %v", err)
	}
	f.passed(0)
	percent.Store(50)
	f.awaitLog("memory=enough")
	proxytest.Open(t, f.insecure+anyState, "Accept", metadata).Await(2)
	f.passed(1)
	if passed := f.watchers("").Passed; passed.Reasons["lane_bound"] != 1 {
		t.Errorf("the watch passes through because %v", passed.Reasons)
	}
	f.cms.Put("ns", "a", "1")
	whole.Await(3)
	_, _, metrics := f.askAdmin("/metrics", "")
	for _, want := range []string{`watchfan_account_cut_bytes_total{kind="copies"} 2`, `watchfan_account_held_bytes{kind="lanes"} 2`,
		"watchfan_account_sources 1\n", "watchfan_account_strangers_bytes 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}
