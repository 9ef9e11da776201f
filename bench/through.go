package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func throughSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Through",
		Title: "Requests that pass through, TLS: gets of ConfigMaps, and merge patches of one each",
		Note: "CPU is that of the process that clients speak to; kube-apiserver's own is that of the whole request. " +
			"patch-and-read also waits for the event on a watch through the same server.",
		Columns: []report.Column{
			report.Col("CPU µs/request", "cpu-ns/request", 1e-3), report.Col("all servers", "all-cpu-ns/request", 1e-3),
			report.Col("p50 ms", "request-p50-ns", 1e-6), report.Col("p99 ms", "request-p99-ns", 1e-6),
			report.Col("requests/s", "requests/s", 1), report.Col("CPU of nginx's", "cpu/nginx-cpu", 1),
		},
		Costs: 4,
	}
}

// An askCase is what clients ask one after the other: each its own object of the collection.
type askCase struct {
	name    string
	clients int
}

// askCases are what the part asks, in its order. In the last one a client waits until a watch of the
// collection, through the same server, has brought what it has written: as long as a controller that reads
// its own writes from its informers.
var askCases = []askCase{{"get", 1}, {"get", 16}, {"patch", 8}, {patchAndRead, 1}}

const patchAndRead = "patch-and-read"

// through measures one peer over TLS. Nothing is cached until the last case, because nobody has watched
// ConfigMaps at this watchfan. nginx has no part in that: it gathers the events of a watch.
func (p *program) through(ctx context.Context, st *server.Stage) error {
	if !st.Peer.TLS {
		return nil
	}
	for _, ask := range askCases {
		if ask.name == patchAndRead && st.Peer == report.Nginx {
			continue
		}
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("request", ask.name, "at-a-time", ask.clients)}
		x.Metrics, x.Err = p.measureThrough(ctx, st, ask)
		if err := p.note(ctx, st, "Through", x); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureThrough(ctx context.Context, st *server.Stage, ask askCase) ([]report.Metric, error) {
	clients := load.Habit{Clients: ask.clients, Shared: true,
		Target: func(i, _ int) string { return st.Coll.ObjectPath(i) }}.At(st.Endpoint())
	defer clients.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if ask.name != "get" {
		clients.Patch = `{"data":{"turn":"%d"}}`
	}
	if ask.name == patchAndRead {
		came, err := clients.Follow(ctx, st.Coll.Path())
		if err != nil {
			return nil, err
		}
		clients.Take = func(_ int, resp *http.Response) error { return awaitVersion(resp.Body, came) }
	}
	if _, err := clients.For(ctx, p.opts.Warmup); err != nil {
		return nil, err
	}
	var took *measure.Distribution
	used, err := metered(st, func() (err error) {
		took, err = clients.For(ctx, p.opts.Window)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := float64(took.Count)
	return append([]report.Metric{
		report.M("cpu-ns/request", float64(used.CPU[st.Peer.Name])/n),
		report.M("all-cpu-ns/request", float64(report.ServersCPU(&used))/n),
		report.Q("request-p50-ns", took, 0.5), report.Q("request-p99-ns", took, 0.99),
		report.M("requests/s", n/used.Window.Seconds()),
	}, report.UsageMetrics(&used)...), nil
}

// awaitVersion waits until a watch has brought an object that was answered.
func awaitVersion(answer io.Reader, came <-chan uint64) error {
	var written load.Versioned
	body, err := io.ReadAll(answer)
	if err == nil {
		err = json.Unmarshal(body, &written)
	}
	if err != nil {
		return err
	}
	for version := range came {
		if version >= written.Metadata.ResourceVersion {
			return nil
		}
	}
	return errors.New("the watch has ended")
}

// throughNginx measures nginx, if it is installed.
func (p *program) throughNginx(ctx context.Context, st *server.Stage) (err error) {
	if p.opts.Nginx == "" {
		return nil
	}
	if st.Proxy, err = server.StartNginx(ctx, p.opts.Nginx, st.Cluster); err != nil {
		return err
	}
	st.Peer = report.Nginx
	defer func() {
		st.Proxy.Child.Stop()
		st.Proxy = nil
	}()
	return p.through(ctx, st)
}
