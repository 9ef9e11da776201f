//go:build nightly

package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// Self-checks in these tests: objects large enough that a list has several pages, in lanes of these
// forms.
const (
	checkedObjects = 150
	checkedSize    = 120_000
	checksPassed   = 5 // of each lane, before a test believes that there is no false alarm
)

var checkedForms = []string{jsonType, protoType, partials}

const (
	checkedCollection = "/api/v1/configmaps"
	checkedNamespace  = "/api/v1/namespaces/checked/configmaps"
)

// checkedFan is a watchfan that compares its caches each second, and has lanes of ConfigMaps, events
// and leases.
type checkedFan struct{ direct, admin *target }

// startChecked starts a checkedFan, and returns the name of its log.
func startChecked(t *testing.T, c *cluster) (f *checkedFan, log string) {
	t.Helper()
	direct := c.direct(t)
	createNamespaces(t, direct, "checked")
	padding := strings.Repeat("x", checkedSize)
	for i := range checkedObjects {
		direct.create(t, checkedNamespace, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%03d"},"data":{"k":%q}}`, i, padding))
	}
	p := privateWatchfan(t, c, "--self-check-interval=1s")
	plain := p.plain(t)
	for _, form := range checkedForms {
		plain.do(t, http.MethodGet, checkedCollection+"?resourceVersion=0&limit=1", accept(form), "")
	}
	plain.get(t, "/api/v1/events?resourceVersion=0")
	plain.get(t, "/apis/coordination.k8s.io/v1/leases?resourceVersion=0")
	return &checkedFan{direct, p.admin(t)}, p.Log
}

// checks returns how often a comparison of a lane had a result.
func (f *checkedFan) checks(t *testing.T, resource, encoding, result string) float64 {
	t.Helper()
	return f.admin.metric(t, "watchfan_lane_self_checks_total",
		`resource="`+resource+`"`, `encoding="`+encoding+`"`, `result="`+result+`"`)
}

// awaitEqual waits until each lane has been compared n times more with the result equal.
func (f *checkedFan) awaitEqual(t *testing.T, n float64) {
	t.Helper()
	lanes := [][2]string{{"leases", "json"}, {"events", "json"}, {"configmaps", "json"}, {"configmaps", "protobuf"},
		{"configmaps", "json-metadata-v1"}}
	before := make([]float64, len(lanes))
	for i, l := range lanes {
		before[i] = f.checks(t, l[0], l[1], "equal")
	}
	steady.Until(t, "self-checks", func() error {
		for i, l := range lanes {
			if got := f.checks(t, l[0], l[1], "equal") - before[i]; got < n {
				return fmt.Errorf("%v more of %v, want %v", got, l, n)
			}
		}
		return nil
	})
}

// noAlarm fails the test if any comparison has found a difference.
func (f *checkedFan) noAlarm(t *testing.T) {
	t.Helper()
	if n := f.admin.metric(t, "watchfan_lane_self_checks_total", `result="different"`); n != 0 {
		t.Errorf("%v comparisons found a difference", n)
	}
}

// writeAll writes ConfigMaps, events and leases until the returned function is called, which waits
// for the end. Writes may fail while kube-apiserver restarts.
func writeAll(direct *target) (stop func()) {
	var wg sync.WaitGroup
	stopc := make(chan struct{})
	wg.Go(func() {
		for i := 0; pace(stopc, 100*time.Millisecond); i++ {
			name := fmt.Sprintf("/c%03d", i*37%checkedObjects)
			_, _ = direct.write(http.MethodPatch, checkedNamespace+name, "application/merge-patch+json",
				fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
			small := fmt.Sprintf("d%d", i%20)
			if i%40 < 20 {
				_, _ = direct.write(http.MethodPost, checkedNamespace, jsonType,
					fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, small))
				_, _ = direct.write(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/checked/leases", jsonType,
					fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q}}`, small))
			} else {
				_, _ = direct.try(http.MethodDelete, checkedNamespace+"/"+small, nil, "")
				_, _ = direct.try(http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/checked/leases/"+small, nil, "")
			}
			_, _ = direct.write(http.MethodPost, "/api/v1/namespaces/checked/events", jsonType, fmt.Sprintf(
				`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e%d"},"involvedObject":{"namespace":"checked"}}`, i))
		}
	})
	return func() { close(stopc); wg.Wait() }
}

// checkedLane is what the tests read of one lane in /debug/lanes.
type checkedLane struct {
	Resource, Encoding string
	SelfCheck          *struct {
		Result, ResourceVersion, Digest string
		Objects                         int
	}
}

// digestAt computes the digest of kube-apiserver's ConfigMaps at a resourceVersion, as package
// selfcheck describes it.
func digestAt(t *testing.T, direct *target, rv string) (digest string, objects int) {
	t.Helper()
	resp := direct.do(t, http.MethodGet, checkedCollection+"?resourceVersionMatch=Exact&resourceVersion="+rv, accept(partials), "")
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID, ResourceVersion string }
		}
	}
	if err := json.Unmarshal(resp.body, &list); err != nil || resp.status != http.StatusOK {
		t.Fatalf("list at %s: %d, %v", rv, resp.status, err)
	}
	sum := new(big.Int)
	for _, item := range list.Items {
		m := item.Metadata
		hash := sha256.Sum256([]byte(m.Namespace + "/" + m.Name + "\x00" + m.UID + "\x00" + m.ResourceVersion))
		sum.Add(sum, new(big.Int).SetBytes(hash[:16]))
	}
	return fmt.Sprintf("%032x", sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128))), len(list.Items)
}

// TestSelfCheck: comparisons of lanes with a real kube-apiserver find no difference while everything
// is written, while kube-apiserver restarts, and after that. The digest of each representation is
// that of kube-apiserver's own list.
func TestSelfCheck(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	f, _ := startChecked(t, c)
	stop := writeAll(f.direct)
	f.awaitEqual(t, checksPassed)
	f.noAlarm(t)
	c.restart(t)
	f.awaitEqual(t, checksPassed)
	stop()
	f.awaitEqual(t, 2)
	f.noAlarm(t)

	var d struct{ Lanes []checkedLane }
	if err := json.Unmarshal(f.admin.get(t, "/debug/lanes?format=json").body, &d); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range d.Lanes {
		if l.SelfCheck == nil || l.Resource != "configmaps" {
			continue
		}
		n++
		digest, objects := digestAt(t, f.direct, l.SelfCheck.ResourceVersion)
		if l.SelfCheck.Result != "equal" || l.SelfCheck.Digest != digest || l.SelfCheck.Objects != objects {
			t.Errorf("%s: got %+v, want %s of %d", l.Encoding, *l.SelfCheck, digest, objects)
		}
	}
	if n != len(checkedForms) {
		t.Errorf("%d lanes of ConfigMaps were compared, want %d", n, len(checkedForms))
	}
}
