package server

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
)

// A floor is a server that does nothing but write: it shows the least cost of a delivery on this
// machine. It is this program, started as a helper (floor_server.go): each watcher gets the events of an order
// with one writev. A floor is its own source of events. Its events have consecutive numbers, and so go to
// its objects in turn.
type floor struct {
	*load.Ledger
	*Helper
	endpoint load.Endpoint
	Batch    float64 // events of an order, on average, at least 1; does not change during run
}

func newFloor(objects int) *floor {
	return &floor{Ledger: load.NewLedger(objects), Batch: 1}
}

// floorIdentity makes a certificate and its key, in PEM, and what clients trust it with.
func floorIdentity() (cert, key []byte, clients *tls.Config, err error) {
	cert, key, roots, err := makeCertificate()
	return cert, key, load.TlsConfig(netip.AddrFrom4([4]byte{127, 0, 0, 1}), roots), err
}

// Run orders rate events a second, f.batch at a time, until ctx ends. A write counts as
// acknowledged just before its order is sent.
func (f *floor) Run(ctx context.Context, fleet *load.Fleet, rate float64) error {
	timetable := measure.Pace{Start: time.Now(), Rate: rate / f.Batch}
	next := slices.Max(f.Seqs) + 1
	for i := uint64(0); ; i++ {
		late, err := timetable.Wait(ctx, i)
		if err != nil {
			return nil
		}
		f.Late.Record(late)
		o := order{next, uint64(float64(i+1)*f.Batch) - uint64(float64(i)*f.Batch)} // the batch, rounded up or down
		for range o[1] {
			object := next % uint64(len(f.Seqs))
			fleet.Expect(int(object))
			f.Seqs[object] = next
			f.Acks.Begin(next)
			f.Done(next)
			next++
		}
		if err := binary.Write(f.Orders, binary.NativeEndian, o); err != nil {
			return err
		}
	}
}
