//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/watchfan/watchfan/bench/measure"
)

func clientGoSection(o *Options) *section {
	return &section{
		bench: "ClientGo",
		title: fmt.Sprintf("A program with %d reflectors of client-go, each of one object, "+
			"as a kubelet has for its ConfigMaps and Secrets", o.ClientGo),
		note: "It has client-go's defaults, except for its limit of requests. " +
			"Dials is the number of TLS handshakes, connections those that are open in the end. " +
			"Memory is resident, after garbage collections, in addition to that with one reflector.",
		columns: []column{
			{"connections", "connections", 1}, {"dials", "dials", 1},
			{"server KiB/watch", unitMemory, 1.0 / 1024}, {"program KiB/watch", "program-B/watch", 1.0 / 1024},
			{"kernel KiB/watch", unitKernel, 1.0 / 1024},
		},
		costs: []column{
			{"connections", "connections", 1}, {"dials", "dials", 1},
			{"server KiB/watch", unitMemory, 1.0 / 1024}, {"program KiB/watch", "program-B/watch", 1.0 / 1024},
		},
	}
}

// clientGo measures one peer, over TLS.
func (p *program) clientGo(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	x := sample{peer: st.peer, axes: []axis{{"watches", fmt.Sprint(p.opts.ClientGo)}}}
	x.metrics, x.err = p.measureClientGo(ctx, st)
	return p.note(ctx, st, partClientGo, x, 5)
}

func (p *program) measureClientGo(ctx context.Context, st *stage) ([]metric, error) {
	dir, err := os.MkdirTemp("", "watchfan-bench-clientgo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	e := st.endpoint()
	job := clientGoJob{Server: e.url(), Token: e.token, Namespace: st.coll.namespace, Objects: st.coll.objects,
		Watches: p.opts.ClientGo}
	c, err := startClientGo(ctx, dir, job)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	if _, err := c.begin(ctx, 1); err != nil { // a server and client-go keep some memory once
		return nil, err
	}
	before, beforeKernel, err := c.costs(ctx, st)
	if err != nil {
		return nil, err
	}
	p.say("%d reflectors", job.Watches)
	state, err := c.begin(ctx, job.Watches)
	if err != nil {
		return nil, err
	}
	after, afterKernel, err := c.costs(ctx, st)
	if err != nil {
		return nil, err
	}
	each := func(grown int64) float64 { return float64(grown) / float64(job.Watches-1) }
	return []metric{
		{"connections", float64(state.Open)}, {"dials", float64(state.Dials)},
		{unitMemory, each(after.RSS[st.peer.name] - before.RSS[st.peer.name])},
		{"program-B/watch", each(after.RSS[clientGoName] - before.RSS[clientGoName])},
		{unitKernel, each(afterKernel.Since(beforeKernel).Structures)},
	}, nil
}

// A clientGoChild is `bench clientgo`, a process of its own.
type clientGoChild struct {
	child  *child
	orders *os.File
	states string // file
}

func startClientGo(ctx context.Context, dir string, job clientGoJob) (*clientGoChild, error) {
	jobFile := filepath.Join(dir, "job")
	text, err := json.Marshal(job)
	if err == nil {
		err = os.WriteFile(jobFile, text, 0o600)
	}
	if err != nil {
		return nil, err
	}
	c := &clientGoChild{states: filepath.Join(dir, "state")}
	c.child, c.orders, err = startHelper(priorityNormal, dir, clientGoName, "--job", jobFile, "--states", c.states)
	if err != nil {
		return nil, err
	}
	var state clientGoState
	if err := c.child.await(ctx, c.states, &state); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *clientGoChild) stop() {
	c.orders.Close()
	c.child.stop()
}

// costs waits until the servers and the program are at rest, and returns what they use then.
func (c *clientGoChild) costs(ctx context.Context, st *stage) (measure.Costs, measure.KernelMemory, error) {
	if _, err := st.rest(ctx); err != nil {
		return measure.Costs{}, measure.KernelMemory{}, err
	}
	all := append(st.processes(), measure.Process{Name: clientGoName, PID: c.child.cmd.Process.Pid})
	costs, err := measure.ReadCosts(all)
	kernel, alsoErr := measure.ReadKernelMemory()
	return costs, kernel, errors.Join(err, alsoErr)
}

// begin lets the next reflectors begin, and waits until so many in all have their objects.
func (c *clientGoChild) begin(ctx context.Context, watches int) (state clientGoState, err error) {
	if _, err := c.orders.Write([]byte("\n")); err != nil {
		return state, err
	}
	for {
		text, err := os.ReadFile(c.states)
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err = errors.Join(err, c.child.alive()); err != nil {
			return state, err
		}
		if state.Watching == watches {
			return state, nil
		}
		if err := sleep(ctx, stateStep); err != nil {
			return state, fmt.Errorf("%d of %d reflectors watch: %w", state.Watching, watches, err)
		}
	}
}
