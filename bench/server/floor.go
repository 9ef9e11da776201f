//go:build linux

package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
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
	*load.Ledger
	child    *Child
	orders   *os.File
	dir      string
	endpoint load.Endpoint
	process  measure.Process

	Batch float64 // events of an order, on average, at least 1; does not change during run
}

const orderSize = 16

// startFloor runs a floor for a collection of n objects, with events of size bytes. Its HTTP/2
// connections have streams watches each; 0 is HTTP/1.1.
func startFloor(ctx context.Context, secure bool, n, size, streams int) (*floor, error) {
	f := &floor{Ledger: load.NewLedger(load.NewAcks(), n), Batch: 1}
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
	if f.child, f.orders, err = StartHelper(PriorityNormal, f.dir, args...); err != nil {
		return err
	}
	var at struct{ Address netip.AddrPort }
	if err := f.child.Await(ctx, ready, &at); err != nil {
		return err
	}
	f.endpoint.Addr = at.Address
	if secure {
		f.endpoint.TLS = load.TlsConfig(at.Address, cert.roots)
	}
	f.process = measure.Process{Name: report.FloorBare.Name, PID: f.child.Cmd.Process.Pid}
	return nil
}

func (f *floor) stop() {
	if f.child != nil {
		f.orders.Close()
		f.child.Stop()
	}
	os.RemoveAll(f.dir)
}

// Run orders rate events a second, f.batch at a time, until ctx ends. A write counts as
// acknowledged just before its order is sent.
func (f *floor) Run(ctx context.Context, fleet *load.Fleet, rate float64) error {
	timetable := measure.Pace{Start: time.Now(), Rate: rate / f.Batch}
	next := f.Seqs[0]
	for _, seq := range f.Seqs {
		next = max(next, seq)
	}
	next++
	for i := uint64(0); ; i++ {
		late, err := timetable.Wait(ctx, i)
		if err != nil {
			return nil
		}
		f.NoteLate(late)
		events := f.events(i)
		order := binary.NativeEndian.AppendUint64(make([]byte, 0, orderSize), next)
		order = binary.NativeEndian.AppendUint64(order, events)
		for range events {
			object := next % uint64(len(f.Seqs))
			fleet.Expect(int(object))
			f.Seqs[object] = next
			f.Acks.Begin(next)
			f.Done(next)
			next++
		}
		if _, err := f.orders.Write(order); err != nil {
			return err
		}
	}
}

// events returns the number of events of the i-th order: batch, rounded up or down.
func (f *floor) events(i uint64) uint64 {
	return uint64(float64(i+1)*f.Batch) - uint64(float64(i)*f.Batch)
}
