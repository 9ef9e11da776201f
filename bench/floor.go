//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A floor is a server that does nothing but write: it shows the least cost of a delivery on this
// machine. It is this program, started as `bench floor` (floor_server.go). A pipe carries its
// orders:
//
//	uint64 number of the first event │ uint64 events    each watcher gets them with one writev
//
// A floor is its own source of events. Its events have consecutive numbers, and so go to its
// objects in turn.
type floor struct {
	*ledger
	child    *child
	orders   *os.File
	dir      string
	endpoint endpoint
	process  measure.Process

	batch float64 // events of an order, on average, at least 1; does not change during run
}

const orderSize = 16

// startFloor runs a floor for a collection of n objects, with events of size bytes. Its HTTP/2
// connections have streams watches each; 0 is HTTP/1.1.
func startFloor(ctx context.Context, secure bool, n, size, streams int) (*floor, error) {
	f := &floor{ledger: newLedger(newAcks(), n), batch: 1}
	var err error
	if f.dir, err = os.MkdirTemp("", "watchfan-bench-floor-"); err != nil {
		return nil, err
	}
	if err := f.start(ctx, secure, n, size, streams); err != nil {
		f.stop()
		return nil, fmt.Errorf("floor: %w", err)
	}
	return f, nil
}

func (f *floor) start(ctx context.Context, secure bool, n, size, streams int) error {
	ready := filepath.Join(f.dir, "ready")
	args := []string{"floor", "--ready", ready, "--objects", strconv.Itoa(n), "--event-size", strconv.Itoa(size),
		"--streams", strconv.Itoa(streams)}
	cert, err := makeCertificate(f.dir)
	if err != nil {
		return err
	}
	if secure {
		args = append(args, "--cert", cert.certFile, "--key", cert.keyFile)
	}
	if f.child, f.orders, err = startHelper(priorityNormal, f.dir, args...); err != nil {
		return err
	}
	var at struct{ Address netip.AddrPort }
	if err := f.child.await(ctx, ready, &at); err != nil {
		return err
	}
	f.endpoint.addr = at.Address
	if secure {
		f.endpoint.tls = tlsConfig(at.Address, cert.roots)
	}
	f.process = measure.Process{Name: floorBare.name, PID: f.child.cmd.Process.Pid}
	return nil
}

func (f *floor) stop() {
	if f.child != nil {
		f.orders.Close()
		f.child.stop()
	}
	os.RemoveAll(f.dir)
}

// run orders rate events a second, f.batch at a time, until ctx ends. A write counts as
// acknowledged just before its order is sent.
func (f *floor) run(ctx context.Context, fleet *fleet, rate float64) error {
	timetable := measure.Pace{Start: time.Now(), Rate: rate / f.batch}
	next := f.seqs[0]
	for _, seq := range f.seqs {
		next = max(next, seq)
	}
	next++
	for i := uint64(0); ; i++ {
		late, err := timetable.Wait(ctx, i)
		if err != nil {
			return nil
		}
		f.noteLate(late)
		events := f.events(i)
		order := binary.NativeEndian.AppendUint64(make([]byte, 0, orderSize), next)
		order = binary.NativeEndian.AppendUint64(order, events)
		for range events {
			object := next % uint64(len(f.seqs))
			fleet.expect(int(object))
			f.seqs[object] = next
			f.acks.begin(next)
			f.done(next)
			next++
		}
		if _, err := f.orders.Write(order); err != nil {
			return err
		}
	}
}

// events returns the number of events of the i-th order: batch, rounded up or down.
func (f *floor) events(i uint64) uint64 {
	return uint64(float64(i+1)*f.batch) - uint64(float64(i)*f.batch)
}

func (f *floor) book() *ledger { return f.ledger }

// runFloor measures a floor with the load of each twin: as many watchers, as many events a second,
// and as many events in a write.
func runFloor(ctx context.Context, o *Options, p peer, twins []result, round int,
	say func(string, ...any)) ([]result, error) {
	say("starting")
	st, err := newFloorStage(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer st.stop()
	s := &session{stage: st, opts: o, round: round, say: say}
	defer s.disband()
	for _, twin := range twins {
		if err := s.gather(ctx, twin.clients, false); err != nil {
			return s.done, fmt.Errorf("%v: %w", p, err)
		}
		st.floor.batch = max(twin.batch, 1)
		offered := rate(float64(twin.writes) / twin.Window.Seconds())
		say("%d watchers, %.0f events/s, %.1f in a write", twin.clients, float64(offered), st.floor.batch)
		r := s.measure(ctx, twin.clients, offered)
		if ctx.Err() != nil {
			return s.done, ctx.Err()
		}
		r.rate, r.batch = twin.rate, st.floor.batch
		s.done = append(s.done, r)
		if r.err != nil {
			say("FAILED: %v", r.err)
			return s.done, nil
		}
	}
	return s.done, nil
}

// floorTwins returns the results of this round to compare a floor with: watchfan's with the same
// kind of port, and with the most watchers or with all numbers of them.
func floorTwins(results []result, p peer, round int, all bool) (twins []result) {
	most := 0
	for _, r := range results {
		most = max(most, r.clients)
	}
	for _, r := range results {
		ours := r.peer.name == watchfanBare.name && r.peer.tls == p.tls && r.round == round
		if ours && r.err == nil && !r.idle && r.clients > 0 && (all || r.clients == most) {
			twins = append(twins, r)
		}
	}
	return twins
}

// A floorLoad is what watchfan has written in a case.
type floorLoad struct {
	watchers int
	streams  int     // watches on each HTTP/2 connection; 0 is HTTP/1.1
	rate     rate    // of writes
	batch    float64 // events in one write to a watcher, at least 1
	bytes    int     // of an event on the wire, without TLS
}

// floorLoadOf returns the load of a sample, without its watchers.
func floorLoadOf(x *sample) floorLoad {
	get := func(unit string) float64 {
		v, _ := x.get(unit)
		return v
	}
	return floorLoad{rate: rate(get(unitWrites)), batch: max(get(unitBatch), 1), bytes: int(get(unitBytes))}
}

// underFloorLoad starts a floor with TLS and returns its figures under a load.
func (p *program) underFloorLoad(ctx context.Context, coll *collection, load floorLoad) (result, error) {
	f, err := startFloor(ctx, true, coll.objects, load.bytes, load.streams)
	if err != nil {
		return result{}, err
	}
	st := &stage{peer: floorTLS, floor: f, coll: coll}
	defer st.stop()
	f.batch = load.batch
	s := &session{stage: st, opts: p.opts, round: p.round, say: p.say}
	defer s.disband()
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err == nil {
		if load.streams > 0 {
			s.fleet.h2 = &multiplex{load.streams, largeSteps}
		}
		err = s.fleet.grow(ctx, load.watchers, s.book().seqs)
	}
	if err != nil {
		return result{}, fmt.Errorf("%v: %w", st.peer, err)
	}
	r := s.measure(ctx, load.watchers, load.rate)
	r.batch = load.batch
	return r, r.err
}
