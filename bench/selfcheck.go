//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Units of self-checks.
const (
	unitCheckOwn       = "cpu-ns/check"           // of watchfan
	unitCheckAPIServer = "apiserver-cpu-ns/check" // of kube-apiserver
	unitCheckAll       = "all-cpu-ns/check"       // of all servers
	unitCheckTime      = "wall-ns/check"
)

const (
	// selfCheckInterval is watchfan's. A comparison begins half of it after the last or later, which
	// leaves time to measure the idle servers before.
	selfCheckInterval = 40 * time.Second
	// selfCheckIdle is for how long the idle servers are measured.
	selfCheckIdle = 4 * time.Second
	// selfCheckTime bounds the measurement of one case.
	selfCheckTime = 4 * time.Minute
)

func selfCheckSection(o *Options) *section {
	return &section{
		bench: "SelfCheck",
		title: fmt.Sprintf("One self-check of %d pods, 3.7 KB each, while nothing else happens", o.Pods),
		note: "The use of the idle servers has been subtracted. One list serves all lanes of the resource. " +
			"watchfan rests three times as long as kube-apiserver works.",
		columns: []column{
			{"CPU-s of watchfan", unitCheckOwn, 1e-9}, {"of kube-apiserver", unitCheckAPIServer, 1e-9},
			{"of all servers", unitCheckAll, 1e-9}, {"wall s", unitCheckTime, 1e-9}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
	}
}

// selfCheck measures watchfan's comparisons of one lane and of two with kube-apiserver.
func (p *program) selfCheck(ctx context.Context, st *stage) error {
	if st.peer == direct {
		return nil
	}
	for i, accept := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		x := sample{peer: st.peer, axes: []axis{{"lanes", []string{"protobuf", "protobuf+json"}[i]}}}
		bounded, cancel := context.WithTimeout(ctx, selfCheckTime)
		if x.err = fillLane(bounded, st, accept); x.err == nil {
			x.metrics, x.err = measureSelfCheck(bounded, st, i+1)
		}
		cancel()
		if err := p.note(ctx, st, partSelfCheck, x, 4); err != nil {
			return err
		}
	}
	return nil
}

// fillLane has watchfan cache the pods in a representation.
func fillLane(ctx context.Context, st *stage, accept string) error {
	e := st.endpoint()
	req, err := http.NewRequestWithContext(ctx, "GET", e.url()+podsPath+"?resourceVersion=0&limit=1", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	client := e.client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// measureSelfCheck measures the next comparison of a number of lanes of pods.
func measureSelfCheck(ctx context.Context, st *stage, lanes int) ([]metric, error) {
	last, err := awaitSelfCheck(ctx, st, lanes, time.Time{})
	if err != nil {
		return nil, err
	}
	if last, err = awaitSelfCheck(ctx, st, lanes, last.Time); err != nil { // the first may have begun during the list
		return nil, err
	}
	meter, err := measure.StartMeter(withBench(st))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(selfCheckIdle); time.Now().Before(end); time.Sleep(selfCheckPoll) {
		if _, err := lastSelfCheck(ctx, st, lanes); err != nil {
			return nil, err
		}
	}
	idle, err := meter.Lap()
	if err != nil {
		return nil, err
	}
	check, err := awaitSelfCheck(ctx, st, lanes, last.Time)
	if err != nil {
		return nil, err
	}
	used, err := meter.Read()
	if err != nil {
		return nil, err
	}
	net := func(name string) float64 {
		return float64(used.CPU[name]) - float64(idle.CPU[name])*float64(used.Window)/float64(idle.Window)
	}
	all := 0.0
	for name := range used.CPU {
		if name != ownName {
			all += net(name)
		}
	}
	m := []metric{
		{unitCheckOwn, net(st.proxy.process.Name)}, {unitCheckAPIServer, net(direct.name)}, {unitCheckAll, all},
		{unitCheckTime, check.Seconds * 1e9}, {"RSS-B", float64(used.RSS[st.proxy.process.Name])},
	}
	return append(m, usageMetrics(&used)...), nil
}

// selfCheckPoll is how often watchfan is asked for its last comparison.
const selfCheckPoll = 200 * time.Millisecond

// selfCheck is one comparison, as /debug/lanes shows it.
type selfCheck struct {
	Result  string
	Objects int
	Time    time.Time // when it ended
	Seconds float64
}

// awaitSelfCheck waits until a comparison of the pods has ended after a time, and returns it.
func awaitSelfCheck(ctx context.Context, st *stage, lanes int, after time.Time) (selfCheck, error) {
	for {
		last, err := lastSelfCheck(ctx, st, lanes)
		if err != nil || last.Time.After(after.Add(time.Second)) {
			return last, err
		}
		select {
		case <-time.After(selfCheckPoll):
		case <-ctx.Done():
			return last, fmt.Errorf("no self-check: %w", ctx.Err())
		}
	}
}

// lastSelfCheck returns the last comparison of the lanes of pods; the zero value if some of them
// have had none. It returns an error unless it found them equal.
func lastSelfCheck(ctx context.Context, st *stage, lanes int) (last selfCheck, err error) {
	page, err := st.proxy.admin.get(ctx, "/debug/lanes?format=json")
	if err != nil {
		return last, err
	}
	var d struct {
		Lanes []struct {
			Resource, Encoding string
			SelfCheck          *selfCheck
		}
	}
	if err := json.Unmarshal(page, &d); err != nil {
		return last, err
	}
	for _, l := range d.Lanes {
		c := l.SelfCheck
		if l.Resource != "pods" || c == nil {
			continue
		}
		if c.Result != "equal" || c.Objects != st.coll.objects {
			return last, fmt.Errorf("the self-check of %s is %s, of %d objects", l.Encoding, c.Result, c.Objects)
		}
		lanes--
		if c.Time.After(last.Time) {
			last = *c
		}
	}
	if lanes > 0 {
		return selfCheck{}, nil
	}
	return last, nil
}
