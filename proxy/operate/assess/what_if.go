package assess

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/consumers"
)

// Agents are the clients of a program that is not there yet. Each makes the same request again and again.
type Agents struct {
	Agents          int     `json:"agents"`
	Verb            string  `json:"verb"` // get, list or watch
	Resource        string  `json:"resource"`
	Every           float64 `json:"every"`           // seconds between two requests of an agent
	ResourceVersion string  `json:"resourceVersion"` // 0, or "" for the newest state
}

const whatIfUsage = "estimate `AGENTS` that are not there yet: agents=5000,list=pods,every=15s, or get= or watch= in place of " +
	"list=; with resourceVersion=0 they take any state"

// rewatch is how long client-go's watches last.
const rewatch = 450 * time.Second

// parseAgents reads --what-if.
func parseAgents(given map[string]string) (*Agents, error) {
	a, every, wrong := &Agents{}, "", error(nil)
	for key, value := range given {
		switch key {
		case "agents":
			a.Agents, _ = strconv.Atoi(value)
		case "get", "list", "watch":
			if a.Verb != "" {
				wrong = fmt.Errorf("--what-if has %s= and %s=: give one of them", min(a.Verb, key), max(a.Verb, key))
			}
			a.Verb, a.Resource = key, value
		case "every":
			every = value
		case "resourceVersion":
			if a.ResourceVersion = value; value != "0" {
				wrong = fmt.Errorf("--what-if has resourceVersion=%s: give 0, or leave it out for the newest state", value)
			}
		default:
			wrong = fmt.Errorf("--what-if has %s=: give agents, every, resourceVersion, and get, list or watch", key)
		}
	}
	if every == "" && a.Verb == "watch" {
		every = rewatch.String()
	}
	period, err := time.ParseDuration(every)
	a.Every = period.Seconds()
	switch {
	case wrong != nil:
		return nil, wrong
	case a.Resource == "" || a.Agents < 1 || err != nil || period < time.Millisecond:
		return nil, errors.New("--what-if: give agents=NUMBER, get, list or watch=RESOURCE, and every=DURATION, as " +
			"agents=5000,list=pods,every=15s")
	}
	return a, nil
}

// WhatIf is what agents would cost.
type WhatIf struct {
	Agents
	Straight Load `json:"straight"` // at kube-apiserver
	Through  Load `json:"through"`  // at kube-apiserver, if they use watchfan
	Watchfan Load `json:"watchfan"` // at all replicas of watchfan then
}

// Load is what a server does, a second.
type Load struct {
	Requests Range `json:"requests"`
	Bytes    Range `json:"bytes"` // to the agents, before compression
	CPU      Range `json:"cpu"`   // cores
}

func exactly(v float64) Range { return Range{v, v, v} }

// estimate returns what agents would cost in a cluster whose metrics were read twice.
func (a *Agents) estimate(before, after *sample, replicas int) (*WhatIf, error) {
	gr := schema.ParseGroupResource(a.Resource)
	now, ok := after.resources[gr]
	if !ok {
		return nil, fmt.Errorf("--what-if: the metrics have nothing of %s: give RESOURCE or RESOURCE.GROUP, as deployments.apps",
			a.Resource)
	}
	r := newResource(gr, before.resources[gr], now, after.at.Sub(before.at).Seconds(), replicas)
	requests := float64(a.Agents) / a.Every
	objects, deliveries, sent := 0., 0., requests // a get's object is in requestCost
	switch a.Verb {
	case "list":
		objects = requests * r.Stored
		sent = objects
	case "watch":
		deliveries = r.Events * float64(a.Agents)
		sent = deliveries
	}
	bytes := exactly(sent * r.objectBytes())
	cost := func(request, object, delivery Range) Range {
		return request.times(requests).plus(object.times(objects)).plus(delivery.times(deliveries))
	}
	return &WhatIf{Agents: *a,
		Straight: Load{exactly(requests), bytes, cost(requestCost.apiserver, objectCost.apiserver, deliveryCost.apiserver)},
		Through:  a.through(requests, replicas, r.objectBytes()),
		Watchfan: Load{exactly(requests), bytes, cost(requestCost.watchfan, objectCost.watchfan, deliveryCost.watchfan)},
	}, nil
}

// through returns what reaches kube-apiserver. Reads of any state, and watches, do not. Each replica asks for the
// newest state a few times a second, whoever wants it. A token's rights are reviewed again when a request comes
// and the last review was ten seconds ago; all agents may have one token.
func (a *Agents) through(requests float64, replicas int, bytes float64) Load {
	asked := requests
	switch {
	case a.Verb == "watch" || a.ResourceVersion == "0":
		asked = 0
	case a.Verb == "list" || a.Agents >= consumers.ManyClients:
		asked = min(asked, float64(replicas*consumers.EasyReads))
	}
	reviews := Range{High: min(requests, float64(a.Agents)/reviewedFor)}
	if a.Verb == "watch" {
		reviews.High = float64(a.Agents) / reviewInterval
	}
	reviews.Mid = reviews.High / 2
	all := Range{asked, asked + reviews.Mid, asked + reviews.High}
	review := Range{0, reviewCost.Mid * reviews.Mid, reviewCost.High * reviews.High}
	return Load{all, exactly(asked * bytes), requestCost.apiserver.times(asked).plus(review)}
}

func (w *WhatIf) writeText(out io.Writer) {
	newest := ""
	if w.ResourceVersion == "" && w.Verb != "watch" {
		newest = ", the newest state"
	}
	fmt.Fprintf(out, "If %d agents %s %s every %s s%s:\n", w.Agents.Agents, w.Verb, w.Resource, number(w.Every), newest)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\trequests/s\tbytes/s\tcores")
	for _, line := range []struct {
		at string
		Load
	}{{"kube-apiserver, straight", w.Straight}, {"kube-apiserver, through watchfan", w.Through}, {"watchfan", w.Watchfan}} {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", line.at, between(line.Requests), size(line.Bytes.Mid), spread(line.CPU, number))
	}
	_ = table.Flush() // an error of out comes back from the next write
	fmt.Fprintln(out)
}

// between writes a range of numbers.
func between(r Range) string {
	if r.Low == r.High {
		return number(r.Low)
	}
	return number(r.Low) + "–" + number(r.High)
}
