//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// runRolling is `bench rolling`. It replaces replicas of watchfan behind a load balancer one after
// another, as a rolling update does, while clients watch and objects are written.
func runRolling(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := rollingDefaults()
	if err := parseOptions("rolling", o, args, stderr); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "rolling: "+format+"\n", args...) }
	r := &rolling{opts: o, say: say}
	err := r.run(ctx)
	return report(stdout, o.Out, o.conditions(), err, r.report)
}

// A rolling is one run.
type rolling struct {
	opts *rollingOptions
	say  func(format string, args ...any)

	dir      string // of temporary files
	cluster  *cluster
	audit    *auditLog
	balancer *balancer
	writes   *changes
	clients  []*rollingClient
	replicas []*replica
	started  int // replicas, for their names

	certificate certificate // of all replicas

	latency atomic.Pointer[measure.Histogram] // the current one of the two below
	before  measure.Histogram                 // before the first replacement
	during  measure.Histogram                 // from the first replacement on

	start    map[string]int // requests that reached kube-apiserver before the first replacement, by kind
	restarts []restart
	spreads  []spread
	faults   []string // clients with missing or repeated events
	events   int      // that were compared
}

// A restart is the replacement of one replica.
type restart struct {
	exit     time.Duration  // from SIGTERM to the process' end
	live     time.Duration  // from SIGTERM until all clients watch again
	requests map[string]int // that reached kube-apiserver, by kind
}

// A spread is the number of connections of each replica.
type spread struct {
	when  string
	conns []int
}

// awayMost returns the largest distance of a replica from an even share, as a part of that share.
func (s spread) awayMost() (most float64) {
	sum := 0
	for _, n := range s.conns {
		sum += n
	}
	even := float64(sum) / float64(len(s.conns))
	for _, n := range s.conns {
		most = max(most, max(float64(n)-even, even-float64(n))/even)
	}
	return most
}

func (r *rolling) run(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "watchfan-rolling-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	defer r.stopServers()
	if err := r.startServers(ctx); err != nil {
		return err
	}
	r.writes = newChanges(r.cluster, r.opts.Objects)
	if err := r.writes.create(ctx); err != nil {
		return err
	}
	stopClients, err := r.connectClients(ctx)
	defer stopClients()
	if err != nil {
		return err
	}
	r.spread("before")
	stopWriting := r.startWriting(ctx)
	err = r.replaceAll(ctx)
	if err := errors.Join(err, stopWriting()); err != nil {
		return err
	}
	r.check(ctx)
	return nil
}

// startServers starts the cluster, the balancer and the first replicas, and returns when the
// replicas are ready.
func (r *rolling) startServers(ctx context.Context) (err error) {
	if r.audit, err = newAuditLog(r.dir, "configmaps", rollingAgent); err != nil {
		return err
	}
	r.say("starting a dev cluster")
	if r.cluster, err = startCluster(ctx, r.opts.Devcluster, r.audit.flags()...); err != nil {
		return err
	}
	if r.certificate, err = makeCertificate(r.dir); err != nil {
		return err
	}
	if r.balancer, err = newBalancer(); err != nil {
		return err
	}
	for range r.opts.Replicas {
		if err := r.startReplica(ctx); err != nil {
			return err
		}
	}
	r.balancer.look()
	return nil
}

// stopServers stops the servers that have been started.
func (r *rolling) stopServers() {
	for _, p := range r.replicas {
		p.child.stop()
	}
	if r.balancer != nil {
		r.balancer.close()
	}
	if r.cluster != nil {
		r.cluster.stop()
	}
}

// connectClients starts the clients, 500 a second, and returns when all of them watch. stop must be
// called, even after an error.
func (r *rolling) connectClients(ctx context.Context) (stop func(), err error) {
	r.say("connecting %d clients", r.opts.Clients)
	r.latency.Store(&r.before)
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop = func() { cancel(); wg.Wait() }
	addr := r.balancer.addr()
	e := endpoint{addr: addr, tls: tlsConfig(addr, r.certificate.roots), token: r.cluster.token}
	var shared *http.Client
	for i := range r.opts.Clients {
		if r.opts.Protocol == http11 || i%r.opts.Streams == 0 {
			shared = newRollingHTTP(e, r.opts.Protocol)
		}
		c := &rollingClient{endpoint: e, selection: r.writes.selection(i), latency: &r.latency, http: shared}
		r.clients = append(r.clients, c)
		wg.Go(func() { c.run(running) })
		if i%50 == 49 {
			if err := sleep(ctx, 100*time.Millisecond); err != nil {
				return stop, err
			}
		}
	}
	return stop, r.awaitLive(ctx, time.Now())
}

// startWriting writes in the background. stop returns the error that ended the writing, if any.
func (r *rolling) startWriting(ctx context.Context) (stop func() error) {
	r.say("writing %v times a second", r.opts.Rate)
	ctx, cancel := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- r.writes.run(ctx, r.opts.Rate) }()
	return func() error { cancel(); return <-written }
}

// replaceAll replaces every replica after a steady time. If connections have a maximal age, it then
// waits until all have reached it.
func (r *rolling) replaceAll(ctx context.Context) (err error) {
	if err := sleep(ctx, r.opts.Steady); err != nil {
		return err
	}
	if r.start, err = r.audit.count(); err != nil {
		return err
	}
	r.latency.Store(&r.during)
	for range r.opts.Replicas {
		if err := r.replace(ctx); err != nil {
			return err
		}
	}
	r.spread("after")
	if r.opts.MaxAge == 0 {
		return nil
	}
	wait := r.opts.MaxAge * 12 / 10
	r.say("waiting for %v, in which all connections become too old", wait)
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	r.spread(fmt.Sprintf("%v later", wait))
	return nil
}

// startReplica starts one more watchfan, adds it to the balancer, and returns when it is ready.
func (r *rolling) startReplica(ctx context.Context) error {
	r.started++
	name := fmt.Sprintf("watchfan-%d", r.started)
	p, err := startReplica(ctx, r, filepath.Join(r.dir, name), name)
	if err != nil {
		return err
	}
	r.replicas = append(r.replicas, p)
	r.balancer.add(p)
	return p.awaitReady(ctx)
}

// replace starts another replica and ends the oldest, as a Deployment's rolling update with a surge
// of one does.
func (r *rolling) replace(ctx context.Context) error {
	if err := r.startReplica(ctx); err != nil {
		return err
	}
	old := r.replicas[0]
	r.say("replacing %s, which has %d connections", old.child.name, r.balancer.count(old))
	begin := time.Now()
	if err := r.terminate(ctx, old.child); err != nil {
		return err
	}
	x := restart{exit: time.Since(begin)}
	r.replicas = r.replicas[1:]
	r.balancer.remove(old)
	if err := r.awaitLive(ctx, begin); err != nil {
		return err
	}
	x.live = time.Since(begin)
	var err error
	if err := sleep(ctx, 3*time.Second); err != nil { // the new replica sends some requests later
		return err
	}
	if x.requests, err = r.audit.count(); err != nil {
		return err
	}
	r.say("replaced %s: it ended after %v; all clients watched again after %v; %v",
		old.child.name, x.exit.Round(time.Millisecond), x.live.Round(time.Millisecond), x.requests)
	r.restarts = append(r.restarts, x)
	return nil
}

// terminate sends SIGTERM to a replica and waits for its end.
func (r *rolling) terminate(ctx context.Context, c *child) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	patience := r.opts.Delay + r.opts.Drain + 30*time.Second
	select {
	case <-c.exit:
	case <-time.After(patience):
		return fmt.Errorf("%s has not ended %v after SIGTERM: %s", c.name, patience, c.tail())
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w: %s", c.name, c.err, c.tail())
	}
	return nil
}

// awaitLive waits until each client watches or has begun a watch since begin. A client whose
// connection is too old does not watch for a moment, and counts if it has begun one.
func (r *rolling) awaitLive(ctx context.Context, begin time.Time) error {
	for deadline := time.Now().Add(time.Minute); ; {
		away := 0
		for _, c := range r.clients {
			if !c.watchedSince(begin) {
				away++
			}
		}
		if away == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d clients do not watch", away, len(r.clients))
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (r *rolling) spread(when string) {
	s := spread{when: when}
	for _, p := range r.replicas {
		s.conns = append(s.conns, r.balancer.count(p))
	}
	r.say("connections %s: %v", when, s.conns)
	r.spreads = append(r.spreads, s)
}

// check compares the events of each client with the writes.
func (r *rolling) check(ctx context.Context) {
	want := make(map[selection][]change)
	deadline := time.Now().Add(30 * time.Second)
	for i, c := range r.clients {
		if _, ok := want[c.selection]; !ok {
			want[c.selection] = r.writes.selectedBy(c.selection)
		}
		seen, written := awaitEvents(ctx, c, want[c.selection], deadline)
		r.events += len(seen)
		if !slices.EqualFunc(seen, written, func(rv uint64, x change) bool { return rv == x.rv }) {
			r.faults = append(r.faults, fmt.Sprintf("client %d, %s: %d events, want %d", i, c.query, len(seen), len(written)))
		}
	}
}

// awaitEvents waits until a client has as many events as there are changes after its list. It
// returns these events and changes. At the deadline it returns the events so far.
func awaitEvents(ctx context.Context, c *rollingClient, all []change, deadline time.Time) ([]uint64, []change) {
	for {
		seen, began := c.state()
		from, _ := slices.BinarySearchFunc(all, began+1, func(x change, rv uint64) int { return cmp.Compare(x.rv, rv) })
		written := all[from:]
		if len(seen) >= len(written) || time.Now().After(deadline) || sleep(ctx, 10*time.Millisecond) != nil {
			return seen, written
		}
	}
}
