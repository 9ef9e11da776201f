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

// floorBeside measures a floor with the load of a sample of this round and adds it to the same
// section: as many watchers, as many events a second, as many events in a write, and as many bytes.
func (p *program) floorBeside(ctx context.Context, bench string, x sample) error {
	get := func(unit string) float64 {
		v, _ := x.get(unit)
		return v
	}
	clients, err := strconv.Atoi(x.axis("clients"))
	if err != nil || clients == 0 || x.round != p.round || x.err != nil {
		return err
	}
	streams, _ := strconv.Atoi(x.axis("streams")) // "" is HTTP/1.1
	st, err := newFloorStage(ctx, x.peer, p.opts.Objects, int(get(unitBytes)), streams)
	if err != nil {
		return err
	}
	defer st.stop()
	st.floor.batch = max(get(unitBatch), 1)
	l := load{clients: clients, rate: rate(get(unitWrites))}
	if streams > 0 {
		l.h2 = &multiplex{streams, largeSteps}
	}
	twin := sample{peer: st.peer, axes: x.axes}
	twin.metrics, _, twin.err = p.under(ctx, st, l)
	return p.note(ctx, st, bench, twin)
}
