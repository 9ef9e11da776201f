//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// runScale is `bench scale`. It compares the cost of requests in clusters of several sizes, and
// what watchfan takes to start there.
func runScale(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := scaleDefaults()
	if err := parseOptions("scale", o, args, stderr); err != nil {
		return err
	}
	start := time.Now()
	s := &scaleBench{opts: o, results: &section{bench: "Scale"}}
	s.say = func(format string, args ...any) {
		at := ""
		if s.pods > 0 {
			at = fmt.Sprintf("%d pods: ", s.pods)
		}
		fmt.Fprintf(stderr, "%s  %s%s\n", clock(time.Since(start)), at, fmt.Sprintf(format, args...))
	}
	err := s.run(ctx)
	if failed := s.results.failed(); failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d measurements failed", failed))
	}
	if len(s.results.samples) == 0 {
		return err
	}
	c := o.conditions()
	c.add("took", clock(time.Since(start)))
	return report(stdout, o.Out, c, err, func(w io.Writer) { writeScale(w, s.results, o) })
}

// A scaleBench is a cluster that grows, with watchfans in front of it.
type scaleBench struct {
	opts    *scaleOptions
	say     func(format string, args ...any)
	results *section

	dir         string // of temporary files
	cluster     *cluster
	audit       *auditLog
	certificate certificate // of all replicas
	writer      *writer
	proxy       *proxy // the peer watchfan; nil between its turns
	empty       int64  // resident memory of kube-apiserver without pods

	pods  int // that there are
	round int // of the present row
}

func (s *scaleBench) run(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "watchfan-bench-scale-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	if s.audit, err = newAuditLog(s.dir, "pods", watcherAgent); err != nil {
		return err
	}
	s.say("starting a dev cluster")
	if s.cluster, err = startCluster(ctx, s.opts.Devcluster, s.audit.flags()...); err != nil {
		return err
	}
	defer s.cluster.stop()
	if s.certificate, err = makeCertificate(s.cluster.dir); err != nil {
		return err
	}
	s.writer = &writer{client: s.cluster.client(), server: s.cluster.url(), token: s.cluster.token}
	defer s.writer.client.CloseIdleConnections()
	atRest, err := s.stage(nil).rest(ctx)
	if err != nil {
		return err
	}
	s.empty = atRest.RSS[direct.name]
	for _, n := range s.opts.Pods {
		if err := s.measure(ctx, n); err != nil {
			return errors.Join(err, s.cluster.child.alive())
		}
	}
	return nil
}

// stage returns the cluster with a proxy or without.
func (s *scaleBench) stage(p *proxy) *stage {
	return &stage{peer: watchfanTLS, cluster: s.cluster, proxy: p}
}

// grow adds pods up to n.
func (s *scaleBench) grow(ctx context.Context, n int) error {
	before := s.pods
	s.pods = n
	return createPods(ctx, s.writer, before, n, scalePod, s.say)
}

// measure measures all rows in a cluster of n pods.
func (s *scaleBench) measure(ctx context.Context, n int) error {
	if err := s.grow(ctx, n); err != nil {
		return err
	}
	defer s.stopProxy()
	if s.opts.wants(func(r *scaleRow) bool { return r.name == "cold" }) {
		if err := s.repeat(ctx, s.cold); err != nil {
			return err
		}
	}
	// The first replica is the peer of the requests.
	if s.opts.wants(func(r *scaleRow) bool { return r.measure != nil || r.name == "first" || r.name == "second" }) {
		if err := s.repeat(ctx, s.replicas); err != nil {
			return err
		}
	}
	if err := s.requests(ctx); err != nil {
		return err
	}
	s.stopProxy()
	if s.opts.wants(func(r *scaleRow) bool { return strings.HasPrefix(r.name, "memory-") }) {
		return s.memory(ctx)
	}
	return nil
}

// requests measures the rows of requests.
func (s *scaleBench) requests(ctx context.Context) error {
	for i := range scaleRows {
		row := &scaleRows[i]
		if row.measure == nil || !s.opts.Only.MatchString(row.name) {
			continue
		}
		err := s.repeat(ctx, func(ctx context.Context, round int) error { return s.turn(ctx, row, round) })
		if err != nil {
			return err
		}
	}
	return nil
}

// repeat calls measure until the rounds are over or have taken too long, once at least.
func (s *scaleBench) repeat(ctx context.Context, measure func(ctx context.Context, round int) error) error {
	begun := time.Now()
	for round := 1; round <= s.opts.Rounds && (round == 1 || time.Since(begun) < s.opts.Patience); round++ {
		if err := measure(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// rowTime bounds one measurement.
const rowTime = 3 * time.Minute

// turn measures a row at one peer after the other.
func (s *scaleBench) turn(ctx context.Context, row *scaleRow, round int) error {
	s.round = round
	for _, p := range []peer{direct, watchfanTLS} {
		if p == direct && row.single != "" {
			continue
		}
		bounded, cancel := context.WithTimeoutCause(ctx, rowTime, fmt.Errorf("not over after %v", rowTime))
		m, err := row.measure(bounded, s, p)
		cancel()
		if err := s.note(ctx, row, p, round, m, err); err != nil {
			return err
		}
	}
	return nil
}

// note adds the figures of a row, or the error that it failed with. It returns an error if the run
// cannot continue.
func (s *scaleBench) note(ctx context.Context, row *scaleRow, p peer, round int, m []metric, failed error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x := sample{peer: p, axes: scaleAxes(row.name, s.pods), round: round, metrics: m, err: failed}
	s.results.add(x)
	text := ""
	for _, f := range row.figures {
		if v, ok := x.get(f.unit); ok {
			text += fmt.Sprintf("  %s %s", human(v*f.scale), f.title)
		}
	}
	if failed != nil {
		text = "  FAILED: " + failed.Error()
	}
	s.say("%s, %s, round %d:%s", row.title, p.name, round, text)
	if failed != nil {
		return s.alive()
	}
	return nil
}

func scaleAxes(row string, pods int) []axis {
	return []axis{{"row", row}, {"pods", strconv.Itoa(pods)}}
}

// alive reports an error if a server has ended.
func (s *scaleBench) alive() error {
	err := s.cluster.child.alive()
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.child.alive())
	}
	return err
}
