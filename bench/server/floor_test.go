package server

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// startFloorHere serves a floor in this process.
func startFloorHere(t *testing.T, secure bool, objects, size, streams int) *floor {
	t.Helper()
	in, orders, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f, job := newFloor(objects), floorJob{Objects: objects, EventSize: size, Streams: streams}
	f.Helper = &Helper{Orders: orders}
	if secure {
		if job.Cert, job.Key, f.endpoint.TLS, err = floorIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newFloorServer(job)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.endpoint.Addr = netip.MustParseAddrPort(listener.Addr().String())
	ended := make(chan error, 1)
	go s.accept(listener)
	go func() { ended <- s.serve(in) }()
	t.Cleanup(func() {
		listener.Close()
		orders.Close()
		if err := <-ended; err != nil {
			t.Errorf("floor: %v", err)
		}
		in.Close()
	})
	return f
}

// orders is a context for so many orders of a floor, which looks at it before each.
type orders struct {
	context.Context
	left int
}

func (o *orders) Err() error {
	if o.left--; o.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestFloor: watchers of a floor get each event once and in order, singly and in batches.
func TestFloor(t *testing.T) {
	for name, c := range map[string]struct {
		secure  bool
		streams int
	}{"plain": {}, "tls": {secure: true}, "h2": {true, 4}} {
		t.Run(name, func(t *testing.T) {
			const objects, size = 7, 1860
			server := startFloorHere(t, c.secure, objects, size, c.streams)
			coll := &load.Collection{Namespace: "bench", Objects: objects}
			watchers, err := load.NewFleet(server.endpoint, coll, []load.Filter{load.Everything}, server.Acks)
			if err != nil {
				t.Fatal(err)
			}
			defer watchers.Close()
			if c.streams > 0 {
				watchers.H2 = &load.Multiplex{Streams: c.streams, Flow: load.LargeSteps}
			}
			if err := watchers.Grow(t.Context(), 20, server.Seqs); err != nil {
				t.Fatal(err)
			}
			for _, batch := range []float64{1, 3.5} {
				server.Batch = batch
				before := server.Acked.Load()
				err := server.Run(&orders{t.Context(), 100}, watchers, 0)
				if err == nil {
					err = watchers.Drain(t.Context(), steady.Patience)
				}
				if err != nil {
					t.Fatal(err)
				}
				if events := server.Acked.Load() - before; events != uint64(100*batch) {
					t.Errorf("%d events in 100 orders of %v", events, batch)
				}
			}
			got := watchers.Read()
			perEvent := float64(got.Bytes) / float64(got.Deliveries)
			if got.Deliveries != 20*450 || got.Early != 0 || perEvent < size || perEvent > size+10 {
				t.Errorf("%d deliveries, %d early, %.0f bytes each", got.Deliveries, got.Early, perEvent)
			}
		})
	}
}
